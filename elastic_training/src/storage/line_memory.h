// SPDX-License-Identifier: Apache-2.0
// Memory of the indexes: an array of zeros that begins on a cache line.
#ifndef ELASTIC_TRAINING_STORAGE_LINE_MEMORY_H_
#define ELASTIC_TRAINING_STORAGE_LINE_MEMORY_H_

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

namespace elastic_training {

/// `count` values of a type that may be all zeros. \throws std::bad_alloc
template <typename T>
class LineMemory {
 public:
  LineMemory() = default;
  explicit LineMemory(size_t count) : bytes_(count * sizeof(T)) {
    if (bytes_ == 0) return;
    if (bytes_ >= kMinMappedBytes) {
      void* const mapped = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (mapped == MAP_FAILED) throw std::bad_alloc();
      data_ = static_cast<T*>(mapped);
      if (bytes_ >= kHugePage) madvise(mapped, bytes_, MADV_HUGEPAGE);
      return;
    }
    void* const memory = std::aligned_alloc(kLine, (bytes_ + kLine - 1) / kLine * kLine);
    if (memory == nullptr) throw std::bad_alloc();
    std::memset(memory, 0, bytes_);
    data_ = static_cast<T*>(memory);
  }
  ~LineMemory() {
    if (bytes_ >= kMinMappedBytes) {
      munmap(data_, bytes_);
    } else {
      std::free(data_);
    }
  }
  LineMemory(LineMemory&& other) noexcept { swap(other); }
  LineMemory& operator=(LineMemory&& other) noexcept {
    swap(other);
    return *this;
  }

  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  size_t bytes() const { return bytes_; }

 private:
  static constexpr size_t kLine = 64;
  // From here on it is mapped, since the heap would keep the holes that growing indexes leave.
  static constexpr size_t kMinMappedBytes = 32 << 10;
  static constexpr size_t kHugePage = 2 << 20;

  void swap(LineMemory& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }

  T* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_STORAGE_LINE_MEMORY_H_
