// SPDX-License-Identifier: Apache-2.0
#include "src/base/huge_memory.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "src/base/mapped_memory.h"

namespace processor {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kMuch = size_t{1} << 20;
constexpr size_t kLine = 64;

// Returns the bytes of whole large pages, or as many as cannot be mapped if there are not as many.
size_t InHugePages(size_t bytes) {
  return bytes > SIZE_MAX - kHugePage ? SIZE_MAX : (bytes + kHugePage - 1) / kHugePage * kHugePage;
}

}  // namespace

HugeMemory::HugeMemory(size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  if (bytes < kLeastMapped) {
    data_ = static_cast<unsigned char*>(std::aligned_alloc(kLine, (bytes + kLine - 1) / kLine * kLine));
  } else if (bytes < kMuch) {
    data_ = static_cast<unsigned char*>(MapMemory(bytes, kLine));
  } else {
    data_ = static_cast<unsigned char*>(MapMemory(InHugePages(bytes), kHugePage));
  }
  if (data_ == nullptr) throw std::bad_alloc();
  if (bytes < kLeastMapped) std::memset(data_, 0, bytes);
  // Advice: where it is not taken, small pages do.
  if (bytes >= kMuch) madvise(data_, InHugePages(bytes), MADV_HUGEPAGE);
}

HugeMemory::~HugeMemory() {
  if (size_ < kLeastMapped) {
    std::free(data_);
  } else {
    UnmapMemory(data_, size_ < kMuch ? size_ : InHugePages(size_));
  }
}

HugeMemory::HugeMemory(HugeMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

HugeMemory& HugeMemory::operator=(HugeMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace processor
