// SPDX-License-Identifier: Apache-2.0
// Memory from malloc with one owner: what a response is written into, and what a host of the drop-in contract releases
// with free(). Of the budget of requests it has what was claimed for it, until it is dropped or given away.
#ifndef PROCESSOR_CODEC_BUFFER_H_
#define PROCESSOR_CODEC_BUFFER_H_

#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "src/base/byte_budget.h"

namespace processor {

class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(claim_, other.claim_);
    return *this;
  }
  ~Buffer() { std::free(data_); }

  /// Makes room for `size` bytes, dropping what was there. False if memory is short. Never null after success.
  bool Allocate(size_t size) {
    std::free(data_);
    data_ = static_cast<char*>(std::malloc(size == 0 ? 1 : size));
    size_ = data_ == nullptr ? 0 : size;
    return data_ != nullptr;
  }

  bool Assign(std::string_view text) {
    if (!Allocate(text.size())) return false;
    std::memcpy(data_, text.data(), text.size());
    return true;
  }

  char* data() { return data_; }
  const char* data() const { return data_; }
  size_t size() const { return size_; }

  /// The claim of what is allocated, which ends with it.
  void Keep(ByteClaim claim) { claim_ = std::move(claim); }

  /// Gives the memory away; the receiver calls free().
  char* Release() {
    size_ = 0;
    claim_.Release();
    return std::exchange(data_, nullptr);
  }

 private:
  char* data_ = nullptr;
  size_t size_ = 0;
  ByteClaim claim_{ByteBudget::Use::kAnswer};
};

}  // namespace processor

#endif  // PROCESSOR_CODEC_BUFFER_H_
