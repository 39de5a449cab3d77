// SPDX-License-Identifier: Apache-2.0
#include "src/storage/row_slabs.h"

#include <sys/mman.h>

#include <new>

#include "src/storage/page_preparer.h"

namespace elastic_training {
namespace {

constexpr size_t kMinSlabBytes = 16 << 20;
constexpr uint32_t kMaxSlabShift = 20;
constexpr size_t kHugePage = 2 << 20;

}  // namespace

RowSlabs::RowSlabs(size_t row_bytes, uint32_t most_rows) : row_bytes_(row_bytes), most_rows_(most_rows) {
  while (shift_ < kMaxSlabShift && (row_bytes << shift_) < kMinSlabBytes) ++shift_;
  mask_ = (1u << shift_) - 1;
  marks_offset_ = row_bytes << shift_;
  slab_bytes_ = (marks_offset_ + (1u << shift_) / kChunkRows + kHugePage - 1) / kHugePage * kHugePage;
}

RowSlabs::~RowSlabs() {
  for (size_t i = 0; i < slab_count_; ++i) {
    char* const slab = directory_.load()[i].load();
    PagePreparer::OfProcess().Forget(slab, slab_bytes_);
    munmap(slab, slab_bytes_);
  }
}

uint32_t RowSlabs::TakeChunk() {
  const std::lock_guard<std::mutex> lock(growth_);
  const uint32_t first = taken_.load(std::memory_order_relaxed);
  if (first >= most_rows_) throw std::bad_alloc();
  if (first >> shift_ == slab_count_) AddSlab();
  taken_.store(first + kChunkRows, std::memory_order_release);
  PrepareAhead(first);
  return first;
}

void RowSlabs::PrepareAhead(uint32_t first) {
  // When a row lies in the second half of a huge page, the next page is prepared; small tables have none.
  const size_t ahead = static_cast<size_t>(first & mask_) * row_bytes_ + kHugePage / 2;
  const size_t page = ahead / kHugePage * kHugePage;
  size_t slab = first >> shift_;
  if (page + kHugePage <= marks_offset_) {
    if ((slab == 0 && page == 0) || slab * slab_bytes_ + page < prepared_) return;
    PagePreparer::OfProcess().Prepare(directory_.load()[slab].load() + page, kHugePage);
    prepared_ = slab * slab_bytes_ + page + kHugePage;
  } else if (ahead >= marks_offset_ && ++slab == slab_count_ && slab << shift_ < most_rows_) {
    try {
      AddSlab();
    } catch (const std::bad_alloc&) {
      return;  // it is not needed yet
    }
    PagePreparer::OfProcess().Prepare(directory_.load()[slab].load(), kHugePage);
    prepared_ = slab * slab_bytes_ + kHugePage;
  }
}

std::vector<bool> RowSlabs::TakeMarks(uint8_t mark) {
  std::vector<bool> taken(rows() / kChunkRows);
  for (size_t chunk = 0; chunk < taken.size(); ++chunk) {
    std::atomic<uint8_t>& one = marks(static_cast<uint32_t>(chunk * kChunkRows));
    if ((one.load(std::memory_order_relaxed) & mark) == 0) continue;
    taken[chunk] = true;
    one.fetch_and(static_cast<uint8_t>(~mark), std::memory_order_relaxed);
  }
  return taken;
}

void RowSlabs::AddSlab() {
  if (slab_count_ == directory_size_) {
    const size_t size = directory_size_ == 0 ? 16 : 2 * directory_size_;
    Directory larger(new std::atomic<char*>[size]());
    for (size_t i = 0; i < slab_count_; ++i) larger[i].store(directories_.back()[i].load());
    directories_.push_back(std::move(larger));
    directory_size_ = size;
    directory_.store(directories_.back().get(), std::memory_order_release);
  }
  // Mapped with room to align it to huge pages; the room is given back.
  const size_t mapped_bytes = slab_bytes_ + kHugePage;
  void* mapped =
      mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  char* const begin = static_cast<char*>(mapped);
  char* const slab = begin + (kHugePage - reinterpret_cast<uintptr_t>(begin) % kHugePage) % kHugePage;
  if (slab > begin) munmap(begin, slab - begin);
  if (slab - begin < kHugePage) munmap(slab + slab_bytes_, kHugePage - (slab - begin));
  // Huge pages save misses of the TLB. Small tables do without them, since a page would be mostly empty; so does the end.
  const size_t small = slab_count_ == 0 ? kHugePage : 0, huge = marks_offset_ / kHugePage * kHugePage;
  if (huge > small) madvise(slab + small, huge - small, MADV_HUGEPAGE);
  directory_.load(std::memory_order_relaxed)[slab_count_++].store(slab, std::memory_order_release);
}

}  // namespace elastic_training
