// SPDX-License-Identifier: Apache-2.0
// Memory that is read from front to back: on large pages where there is much of it.
#ifndef PROCESSOR_KERNELS_HUGE_MEMORY_H_
#define PROCESSOR_KERNELS_HUGE_MEMORY_H_

#include <cstddef>

namespace processor {

/// Bytes of its own, freed with it. Moved, not copied.
class HugeMemory {
 public:
  HugeMemory() = default;
  /// Throws std::bad_alloc. From 1 MiB on the kernel is asked for large pages: a stream of megabytes would need
  /// hundreds of entries of the TLB with small ones.
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

#endif  // PROCESSOR_KERNELS_HUGE_MEMORY_H_
