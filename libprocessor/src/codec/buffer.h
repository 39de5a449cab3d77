// SPDX-License-Identifier: Apache-2.0
// Memory from malloc with one owner: what a response is written into, and what a host of the drop-in contract releases
// with free().
#ifndef PROCESSOR_CODEC_BUFFER_H_
#define PROCESSOR_CODEC_BUFFER_H_

#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

namespace processor {

class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
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

  /// Gives the memory away; the receiver calls free().
  char* Release() {
    size_ = 0;
    return std::exchange(data_, nullptr);
  }

 private:
  char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace processor

#endif  // PROCESSOR_CODEC_BUFFER_H_
