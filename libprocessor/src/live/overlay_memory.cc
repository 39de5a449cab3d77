// SPDX-License-Identifier: Apache-2.0
#include "src/live/overlay_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "absl/strings/str_cat.h"
#include "src/tables/table_file.h"

namespace processor {
namespace {

constexpr size_t kRowPageBytes = 4096;  // of a table file's sections, and of every CPU that we build for
constexpr size_t kLeastShrunkBytes = size_t{1} << 20;
constexpr uint64_t kRowNumbers = (uint64_t{1} << 32) - 16;
constexpr uint64_t kLeastCapacity = uint64_t{1} << 16;
constexpr uint64_t kUsualCapacity = uint64_t{1} << 24;
constexpr uint64_t kMostCapacity = uint64_t{1} << 31;

size_t RoundedUp(size_t value, size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// How many overlays each table has.
class OverlayCounts {
 public:
  static OverlayCounts& Global() {
    static auto* const counts = new OverlayCounts;
    return *counts;
  }
  void Add(const EmbeddingTable* table) {
    std::lock_guard<std::mutex> lock(mutex_);
    ++counts_[table];
  }
  void Remove(const EmbeddingTable* table) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (--counts_[table] == 0) counts_.erase(table);
  }
  int Of(const EmbeddingTable* table) {
    std::lock_guard<std::mutex> lock(mutex_);
    return counts_[table];
  }

 private:
  std::mutex mutex_;
  std::map<const EmbeddingTable*, int> counts_;
};

}  // namespace

absl::Status OverlayMemory::Create(const EmbeddingTable& table, std::unique_ptr<OverlayMemory>* memory) {
  OverlayCounts::Global().Add(&table);
  std::unique_ptr<OverlayMemory> made(new OverlayMemory(table));
  if (absl::Status s = made->Reserve(); !s.ok()) return s;
  if (absl::Status s = made->MapTable(); !s.ok()) return s;
  *memory = std::move(made);
  return absl::OkStatus();
}

OverlayMemory::~OverlayMemory() {
  OverlayCounts::Global().Remove(&table_);
  // Reserved huge pages cannot be unmapped in slices that are not whole pages.
  if (rows_ != nullptr && table_.resident() != nullptr && table_bytes() != 0) {
    mmap(rows_, table_bytes(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  }
  // The addresses of blocks that have moved belong to others.
  for (size_t block = 0; copies_ != nullptr && block < copied_.size(); ++block) {
    if (copied_[block]) continue;
    const auto [begin, end] = BytesOf(block);
    munmap(copies_ + begin, end - begin);
  }
}

bool OverlayMemory::IsOnlyOne() const { return OverlayCounts::Global().Of(&table_) == 1; }

size_t OverlayMemory::table_bytes() const {
  const size_t page = table_.resident() == nullptr ? kRowPageBytes : table_.resident()->memory().page_bytes();
  return RoundedUp((table_.rows() + table_.default_rows()) * stride_, page);
}

absl::Status OverlayMemory::Reserve() {
  const uint64_t rows = table_.rows() + table_.default_rows();
  // Row 0 is none in a VersionRef.
  first_row_ = static_cast<uint32_t>(std::max<size_t>(1, (table_bytes() + stride_ - 1) / stride_));
  // At the same place of a huge page as the file's mapping, so that both can use huge pages.
  in_page_ = has_file_rows() ? reinterpret_cast<uintptr_t>(table_.row(0)) % kBlockBytes : 0;
  uint64_t capacity = std::min({std::max(kUsualCapacity, 4 * rows), kMostCapacity, kRowNumbers - first_row_});
  size_t bytes = 0;
  for (; capacity >= kLeastCapacity; capacity /= 2) {
    bytes = RoundedUp((first_row_ + capacity) * stride_, kRowPageBytes) + 2 * kBlockBytes;
    if (!row_memory_.Reserve(bytes)) continue;
    if (link_memory_.Reserve(RoundedUp(capacity * sizeof(VersionRef), kRowPageBytes))) {
      links_ = reinterpret_cast<std::atomic<VersionRef>*>(link_memory_.data());
      capacity_ = static_cast<uint32_t>(capacity);
      const auto begin = reinterpret_cast<uintptr_t>(row_memory_.data());
      rows_ = row_memory_.data() + (RoundedUp(begin, kBlockBytes) - begin) + in_page_;
      row_memory_.GrowFrom(static_cast<size_t>(rows_ - row_memory_.data()) + table_bytes());
      return absl::OkStatus();
    }
    row_memory_.Release();
  }
  return absl::ResourceExhaustedError(absl::StrCat("table '", table_.path(), "': no addresses for changed rows (",
                                                   bytes, " bytes); give the process more address space"));
}

absl::Status OverlayMemory::MapTable() {
  const size_t bytes = table_bytes();
  if (bytes == 0) return absl::OkStatus();
  copied_.resize((in_page_ + bytes + kBlockBytes - 1) / kBlockBytes);
  if (!has_file_rows()) return absl::OkStatus();
  if (!table_.MapRowsAt(rows_, bytes)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("table '", table_.path(), "': rows cannot be mapped once more: ", std::strerror(errno)));
  }
  // The translations of a table are 0.2 % of it. Variants beside the first one only have those that their requests need.
  if (IsOnlyOne()) PrefaultPages(rows_, bytes);
  return absl::OkStatus();
}

absl::Status OverlayMemory::Reserve(uint32_t count) {
  const uint32_t fresh = count - std::min(count, used_ - taken_);
  if (fresh > capacity_ - used_) {
    return absl::ResourceExhaustedError(absl::StrCat("table '", table_.path(), "': ", uint64_t{used_} + fresh,
                                                     " changed rows, expected at most ", capacity_,
                                                     "; the table needs a new base"));
  }
  const uint32_t used = used_ + fresh;
  if (taken_rows_.size() < used / 64 + 1) taken_rows_.resize(used / 64 + 1);
  if (!row_memory_.Commit(static_cast<size_t>(row(first_row_ + used) - row_memory_.data())) ||
      !link_memory_.Commit(used * sizeof(VersionRef))) {
    return absl::ResourceExhaustedError(
        absl::StrCat("table '", table_.path(), "': no memory for ", used, " changed rows: ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

uint32_t OverlayMemory::Take() noexcept {
  while (~taken_rows_[next_free_] == 0) ++next_free_;
  const auto bit = static_cast<uint32_t>(__builtin_ctzll(~taken_rows_[next_free_]));
  taken_rows_[next_free_] |= uint64_t{1} << bit;
  const uint32_t row = static_cast<uint32_t>(next_free_) * 64 + bit;
  used_ = std::max(used_, row + 1);
  ++taken_;
  return first_row_ + row;
}

void OverlayMemory::Give(uint32_t number) noexcept {
  const uint32_t row = number - first_row_;
  taken_rows_[row / 64] &= ~(uint64_t{1} << row % 64);
  next_free_ = std::min<size_t>(next_free_, row / 64);
  --taken_;
}

void OverlayMemory::Shrink() noexcept {
  if (size_t{used_ - taken_} * stride_ < kLeastShrunkBytes) return;
  size_t word = (size_t{used_} + 63) / 64;
  while (word > 0 && taken_rows_[word - 1] == 0) --word;
  const auto used = static_cast<uint32_t>(word * 64);
  // What each epoch would take again stays.
  if (used >= used_ / 2 || size_t{used_ - used} * stride_ < kLeastShrunkBytes) return;
  row_memory_.Drop(static_cast<size_t>(row(first_row_ + used) - row_memory_.data()));
  link_memory_.Drop(used * sizeof(VersionRef));
  used_ = used;
}

std::pair<size_t, size_t> OverlayMemory::BytesOf(size_t block) const {
  const size_t begin = block * kBlockBytes, end = begin + kBlockBytes;
  return {std::max(begin, in_page_) - in_page_, std::min(end - in_page_, table_bytes())};
}

std::pair<uint32_t, uint32_t> OverlayMemory::RowsOf(size_t block) const {
  const auto [begin, end] = BytesOf(block);
  const uint64_t rows = table_.rows() + table_.default_rows();
  return {static_cast<uint32_t>((begin + stride_ - 1) / stride_),
          static_cast<uint32_t>(std::min<uint64_t>((end + stride_ - 1) / stride_, rows))};
}

bool OverlayMemory::Copy(size_t block) noexcept {
  if (!has_file_rows()) return false;
  const size_t all = table_bytes();
  if (copies_ == nullptr) {
    // The same distance from the place of each block: so the kernel makes one mapping of copies that are neighbors.
    const size_t spare = in_page_ + kBlockBytes;
    void* const found =
        mmap(nullptr, all + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found == MAP_FAILED) return false;
    auto* const begin = static_cast<uint8_t*>(found);
    const auto address = reinterpret_cast<uintptr_t>(begin);
    copies_ = begin + (RoundedUp(address, kBlockBytes) - address) + in_page_;
    if (copies_ != begin) munmap(begin, static_cast<size_t>(copies_ - begin));
    const size_t behind = static_cast<size_t>(begin + all + spare - (copies_ + all));
    if (behind != 0) munmap(copies_ + all, behind);
    madvise(copies_, all, MADV_HUGEPAGE);
  }
  const auto [begin, end] = BytesOf(block);
  const size_t bytes = end - begin;
  std::memcpy(copies_ + begin, rows_ + begin, bytes);
  // Whoever reads meanwhile waits for the kernel, and finds the copy, whose bytes are the same.
  if (mremap(copies_ + begin, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, static_cast<void*>(rows_ + begin)) ==
      MAP_FAILED) {
    madvise(copies_ + begin, bytes, MADV_DONTNEED);
    return false;
  }
  copied_[block] = true;
  // Nobody reads these rows of the file any more, unless another model does. A resident table has no pages to give back.
  if (IsOnlyOne() && table_.resident() == nullptr) {
    table_.DropPages(begin, bytes);
  } else {
    copied_bytes_ += bytes;
  }
  return true;
}

}  // namespace processor
