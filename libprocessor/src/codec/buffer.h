// SPDX-License-Identifier: Apache-2.0
// The memory of a response. It comes from malloc, because a host of the drop-in contract releases it with free().
#ifndef PROCESSOR_CODEC_BUFFER_H_
#define PROCESSOR_CODEC_BUFFER_H_

#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "src/base/byte_budget.h"

namespace processor {

/// Owns memory and its claim on the budget of requests, until it is destroyed or gives the memory away. One thread uses
/// it at a time.
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

  /// Allocates `size` bytes in the place of what was there. Returns false if there is no memory; data() is not null after
  /// success, even for 0 bytes.
  bool Allocate(size_t size) {
    std::free(data_);
    data_ = static_cast<char*>(std::malloc(size == 0 ? 1 : size));
    size_ = data_ == nullptr ? 0 : size;
    return data_ != nullptr;
  }

  /// Copies a text. Returns false if there is no memory.
  bool Assign(std::string_view text) {
    if (!Allocate(text.size())) return false;
    std::memcpy(data_, text.data(), text.size());
    return true;
  }

  char* data() { return data_; }
  const char* data() const { return data_; }
  size_t size() const { return size_; }

  /// Takes over the claim of the memory and releases it together with the memory.
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
