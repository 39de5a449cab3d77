// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/huge_memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>
#include <utility>

namespace processor {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kMuch = size_t{1} << 20;
constexpr size_t kLine = 64;

}  // namespace

HugeMemory::HugeMemory(size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  const size_t alignment = bytes >= kMuch ? kHugePage : kLine;
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  data_ = rounded < bytes ? nullptr : static_cast<unsigned char*>(std::aligned_alloc(alignment, rounded));
  if (data_ == nullptr) throw std::bad_alloc();
  // Advice: where it is not taken, small pages do.
  if (bytes >= kMuch) madvise(data_, rounded, MADV_HUGEPAGE);
}

HugeMemory::~HugeMemory() { std::free(data_); }

HugeMemory::HugeMemory(HugeMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

HugeMemory& HugeMemory::operator=(HugeMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace processor
