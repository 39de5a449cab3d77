// SPDX-License-Identifier: Apache-2.0
#include "src/live/overlay_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "src/tables/table_file.h"

namespace processor {
namespace {

constexpr size_t kRowPageBytes = 4096;  // of a table file's sections, and of every CPU that we build for
constexpr size_t kHugePageBytes = size_t{2} << 20;
// Pages are committed in steps, so that there are few changes of the mapping.
constexpr size_t kStepBytes = size_t{4} << 20;
constexpr uint64_t kRowNumbers = (uint64_t{1} << 32) - 16;
constexpr uint64_t kLeastCapacity = uint64_t{1} << 16;
constexpr uint64_t kUsualCapacity = uint64_t{1} << 24;
constexpr uint64_t kMostCapacity = uint64_t{1} << 31;

size_t RoundedUp(size_t value, size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

uint8_t* ReserveAddresses(size_t bytes) {
  void* const found = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return found == MAP_FAILED ? nullptr : static_cast<uint8_t*>(found);
}

// Commits memory up to `wanted` bytes; `committed` tells how far it is.
bool CommitPages(uint8_t* begin, size_t wanted, size_t limit, size_t* committed) {
  if (wanted <= *committed) return true;
  const size_t end = std::min(RoundedUp(wanted, kStepBytes), limit);
  if (mprotect(begin + *committed, end - *committed, PROT_READ | PROT_WRITE) != 0) return false;
  *committed = end;
  return true;
}

}  // namespace

absl::Status OverlayMemory::Create(const EmbeddingTable& table, std::unique_ptr<OverlayMemory>* memory) {
  std::unique_ptr<OverlayMemory> made(new OverlayMemory(table));
  if (absl::Status s = made->Reserve(); !s.ok()) return s;
  if (absl::Status s = made->MapTable(); !s.ok()) return s;
  *memory = std::move(made);
  return absl::OkStatus();
}

OverlayMemory::~OverlayMemory() {
  if (reserved_ != nullptr) UnmapInSlices(reserved_, reserved_bytes_);
  if (links_ != nullptr) UnmapInSlices(reinterpret_cast<uint8_t*>(links_), link_bytes_);
}

absl::Status OverlayMemory::Reserve() {
  const uint64_t rows = table_.rows() + table_.default_rows();
  const size_t table_bytes = RoundedUp(rows * stride_, kRowPageBytes);
  // Row 0 is none in a VersionRef.
  first_row_ = static_cast<uint32_t>(std::max<size_t>(1, (table_bytes + stride_ - 1) / stride_));
  uint64_t capacity = std::min({std::max(kUsualCapacity, 4 * rows), kMostCapacity, kRowNumbers - first_row_});
  for (; capacity >= kLeastCapacity; capacity /= 2) {
    // At the same place of a huge page as the file's mapping, so that both can use huge pages.
    const size_t in_page = reinterpret_cast<uintptr_t>(table_.row(0)) % kHugePageBytes;
    reserved_bytes_ = RoundedUp((first_row_ + capacity) * stride_, kRowPageBytes) + 2 * kHugePageBytes;
    link_bytes_ = RoundedUp(capacity * sizeof(VersionRef), kRowPageBytes);
    reserved_ = ReserveAddresses(reserved_bytes_);
    uint8_t* const links = reserved_ == nullptr ? nullptr : ReserveAddresses(link_bytes_);
    if (links != nullptr) {
      links_ = reinterpret_cast<std::atomic<VersionRef>*>(links);
      capacity_ = static_cast<uint32_t>(capacity);
      rows_ = reinterpret_cast<uint8_t*>(RoundedUp(reinterpret_cast<uintptr_t>(reserved_), kHugePageBytes) + in_page);
      return absl::OkStatus();
    }
    if (reserved_ != nullptr) UnmapInSlices(std::exchange(reserved_, nullptr), reserved_bytes_);
  }
  return absl::ResourceExhaustedError(absl::StrCat("table '", table_.path(), "': no addresses for changed rows (",
                                                   reserved_bytes_, " bytes); give the process more address space"));
}

absl::Status OverlayMemory::MapTable() {
  const size_t bytes = RoundedUp((table_.rows() + table_.default_rows()) * stride_, kRowPageBytes);
  if (bytes == 0) return absl::OkStatus();
  // Old size 0: a second mapping of the same pages, also if the file's name is gone.
  void* const mapped =
      mremap(const_cast<uint8_t*>(table_.row(0)), 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, static_cast<void*>(rows_));
  if (mapped == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("table '", table_.path(), "': rows cannot be mapped once more: ", std::strerror(errno)));
  }
  madvise(mapped, bytes, MADV_HUGEPAGE);  // advice: an error changes nothing
  PrefaultPages(rows_, bytes);
  return absl::OkStatus();
}

absl::Status OverlayMemory::Commit(uint32_t count) {
  if (count > capacity_) {
    return absl::ResourceExhaustedError(absl::StrCat("table '", table_.path(), "': ", count,
                                                     " changed rows, expected at most ", capacity_,
                                                     "; the table needs a new base"));
  }
  uint8_t* const begin = rows_ + RoundedUp((table_.rows() + table_.default_rows()) * stride_, kRowPageBytes);
  const size_t wanted = static_cast<size_t>(row(first_row_ + count) - begin);
  const size_t row_limit = RoundedUp(static_cast<size_t>(row(first_row_ + capacity_) - begin), kRowPageBytes);
  if (!CommitPages(begin, wanted, row_limit, &committed_row_bytes_) ||
      !CommitPages(reinterpret_cast<uint8_t*>(links_), count * sizeof(VersionRef), link_bytes_,
                   &committed_link_bytes_)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("table '", table_.path(), "': no memory for ", count, " changed rows: ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

}  // namespace processor
