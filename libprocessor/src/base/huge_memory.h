// SPDX-License-Identifier: Apache-2.0
// Memory on large pages, if there is much of it.
#ifndef PROCESSOR_BASE_HUGE_MEMORY_H_
#define PROCESSOR_BASE_HUGE_MEMORY_H_

#include <cstddef>

namespace processor {

/// Owns bytes, which are zeros at first. It can be moved but not copied. From 64 KiB on, the operating system gives each page
/// when it is first written.
class HugeMemory {
 public:
  HugeMemory() = default;
  /// Throws std::bad_alloc. From 1 MiB on it asks the operating system for large pages, because a stream of megabytes needs
  /// hundreds of TLB entries with small ones.
  explicit HugeMemory(size_t bytes);
  ~HugeMemory();
  HugeMemory(HugeMemory&& other) noexcept;
  HugeMemory& operator=(HugeMemory&& other) noexcept;

  unsigned char* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  unsigned char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace processor

#endif  // PROCESSOR_BASE_HUGE_MEMORY_H_
