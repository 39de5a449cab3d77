// SPDX-License-Identifier: Apache-2.0
#include "src/live/committed_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "src/tables/table_file.h"

namespace processor {
namespace {

constexpr size_t kCommittedPage = 4096;
// Much memory is read at random: with small pages, each read would also look for the page.
constexpr size_t kHugeMemoryFrom = size_t{4} << 20;

}  // namespace

CommittedMemory::~CommittedMemory() { Release(); }

bool CommittedMemory::Reserve(size_t bytes) {
  void* const found = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return false;
  data_ = static_cast<uint8_t*>(found);
  bytes_ = bytes;
  begin_ = end_ = 0;
  return true;
}

void CommittedMemory::Release() {
  if (data_ != nullptr) UnmapInSlices(std::exchange(data_, nullptr), bytes_);
}

bool CommittedMemory::Commit(size_t end) {
  if (end <= end_) return true;
  if (end > bytes_) return false;
  // A quarter more than there was, so that there are few changes of the mapping and little memory that nobody uses.
  const size_t wanted = std::max(end, end_ + (end_ - begin_) / 4);
  const size_t next = std::min((wanted + kCommittedPage - 1) / kCommittedPage * kCommittedPage, bytes_);
  if (mprotect(data_ + end_, next - end_, PROT_READ | PROT_WRITE) != 0) return false;
  if (next - begin_ >= kHugeMemoryFrom) madvise(data_ + end_, next - end_, MADV_HUGEPAGE);
  end_ = next;
  return true;
}

void CommittedMemory::Drop(size_t begin) noexcept {
  const size_t first = (begin + kCommittedPage - 1) / kCommittedPage * kCommittedPage;
  if (first < end_) madvise(data_ + first, end_ - first, MADV_DONTNEED);
}

}  // namespace processor
