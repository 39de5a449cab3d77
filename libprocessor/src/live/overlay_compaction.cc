// SPDX-License-Identifier: Apache-2.0
// What an overlay does in idle time.
#include <algorithm>
#include <cstring>
#include <new>

#include "src/live/overlay_table.h"

namespace processor {
namespace {

// Rows that are compacted between two looks at the clock.
constexpr size_t kCompactedAtOnce = 256;
// A block of the file's rows is copied if a 64th of its rows have versions, so that versions take at most 2 % of the memory
// of the table; where other overlays map the same file, if seven eighths have.
constexpr uint32_t kWorthAlone = 64;
constexpr uint32_t kWorthBesideOthers = 8;
// Fewer dropped keys are not worth a new index.
constexpr size_t kLeastDropped = 1024;
constexpr size_t kDroppedPart = 4;

}  // namespace

size_t OverlayTable::uncompacted_epochs() const {
  return static_cast<size_t>(std::count_if(
      log_.begin(), log_.end(), [this](const ChangedAt& changed) { return changed.epoch <= readers_.oldest_epoch; }));
}

bool OverlayTable::Compact(std::chrono::steady_clock::time_point until) noexcept {
  try {
    UseErasedAgain();
    while (!log_.empty() && log_.front().epoch <= readers_.oldest_epoch) {
      const ChangedAt& changed = log_.front();
      const size_t deleted_end = changed.rows.size() + changed.deleted.size();
      while (compacted_ < deleted_end + changed.keys.size()) {
        if (compacted_ < changed.rows.size()) {
          const size_t count = std::min(kCompactedAtOnce, changed.rows.size() - compacted_);
          CompactRows(changed.rows.data() + compacted_, count);
          compacted_ += count;
        } else if (compacted_ < deleted_end) {
          const KeyOfRow& deleted = changed.deleted[compacted_++ - changed.rows.size()];
          EraseKey(deleted.key, deleted.row);
        } else {
          CompactKey(changed.keys[compacted_++ - deleted_end]);
        }
        if (std::chrono::steady_clock::now() >= until) return true;
      }
      log_.pop_front();
      compacted_ = 0;
      rejected_ = SIZE_MAX;
    }
    PruneNewKeys();
  } catch (const std::bad_alloc&) {
    // Another time. What is done is complete.
  }
  return false;
}

// Leaves dropped keys out of the index of new keys when they are many.
void OverlayTable::PruneNewKeys() {
  if (owned_key_index_ == nullptr || owned_key_index_->dropped() <= kLeastDropped ||
      kDroppedPart * owned_key_index_->dropped() <= owned_key_index_->size()) {
    return;
  }
  const size_t left = owned_key_index_->size() - owned_key_index_->dropped();
  SetKeyIndex(owned_key_index_->Copy(left + left / 4));
}

// Gives back the versions that are older than the one that the oldest reader finds.
void OverlayTable::Trim(std::atomic<VersionRef>* newest, bool in_file) noexcept {
  std::atomic<VersionRef>* leads_to = newest;
  VersionRef version = leads_to->load(std::memory_order_relaxed);
  while (EpochOf(version) > readers_.oldest_epoch) {
    if (RowOf(version) == 0) return;
    leads_to = &memory_->replaced(RowOf(version));
    version = leads_to->load(std::memory_order_relaxed);
  }
  const uint32_t row = RowOf(version);
  if (EpochOf(version) == 0 || row == 0 || !memory_->IsOverlayRow(row)) return;
  if (IsInPlace(version)) {
    // All readers read what is in the file, or a later version.
    rows_in_place_ -= leads_to == newest;
    leads_to->store(0, std::memory_order_release);
    GiveBackFrom(version);
    return;
  }
  const VersionRef old = memory_->replaced(row).load(std::memory_order_relaxed);
  memory_->SetReplaced(row, 0);
  if (IsDeleted(version)) {
    // Its row only led to what it replaced.
    const VersionRef absent = leads_to == newest ? kDroppedKey : 0;
    leads_to->store(in_file ? MakeVersion(EpochOf(version), true, 0) : absent, std::memory_order_release);
    memory_->Give(row);
  }
  GiveBackFrom(old);
}

// Gives back the row of a version, and those of all that it leads to.
void OverlayTable::GiveBackFrom(VersionRef version) noexcept {
  while (RowOf(version) != 0 && EpochOf(version) != 0) {
    const uint32_t unread = RowOf(version);
    version = memory_->IsOverlayRow(unread) ? memory_->replaced(unread).load(std::memory_order_relaxed) : 0;
    GiveBack(unread);
  }
}

void OverlayTable::GiveBack(uint32_t row) noexcept {
  if (memory_->IsOverlayRow(row)) return memory_->Give(row);
  EndLoan(row);
}

// Takes a row back from the key to which it was lent.
void OverlayTable::EndLoan(uint32_t row) noexcept {
  is_lent_[row] = false;
  --lent_;
  // If there is an index in memory, the row is free when its own key has been erased.
  if (live_index() != nullptr && !is_spare_[row]) return;
  is_spare_[row] = live_index() == nullptr;
  spare_rows_.push_back(row);  // which has room for it
}

// Whether the key of a row is deleted for all readers, so that nobody reads the row.
bool OverlayTable::IsUnread(uint32_t row) const {
  const std::atomic<VersionRef>* const newest = changed_->Newest(row);
  const VersionRef version = newest == nullptr ? 0 : newest->load(std::memory_order_relaxed);
  return IsDeleted(version) && EpochOf(version) <= readers_.oldest_epoch;
}

void OverlayTable::KeepForNewKeys(uint32_t row) {
  // Row 0 is none in a version. The rows of keys in the index in memory are kept when they have been erased.
  if (row == 0 || !memory_->IsWritable(row) || live_index() != nullptr) return;
  if (is_spare_.empty()) {
    is_spare_.resize(base_->rows());
    is_lent_.resize(base_->rows());
  }
  if (is_spare_[row] || is_lent_[row]) return;
  ReserveMore(lent_ + 1, &spare_rows_);
  spare_rows_.push_back(row);
  is_spare_[row] = true;
}

uint32_t OverlayTable::TakeFileRow() {
  while (!spare_rows_.empty()) {
    const uint32_t row = spare_rows_.back();
    spare_rows_.pop_back();
    is_spare_[row] = false;
    // Its key may have been added again.
    if (!IsUnread(row)) continue;
    is_lent_[row] = true;
    ++lent_;
    return row;
  }
  return 0;
}

void OverlayTable::CompactKey(uint64_t key) {
  owned_key_index_->ForEach(key, [this](uint64_t key, std::string_view text, std::atomic<VersionRef>* newest) {
    CompactNewKey(key, text, newest);
  });
}

void OverlayTable::CompactNewKey(uint64_t key, std::string_view text, std::atomic<VersionRef>* newest) {
  // What has moved is kept for those who found it here.
  if (live_index() != nullptr && live_index()->Find(key, text) != kNotFound) return;
  bool in_file = false;
  if (!shared_.empty()) {
    const auto number = static_cast<int64_t>(key);
    uint32_t row = kNotFound;
    in_file = base_->FindKeys(absl::MakeConstSpan(&number, 1), &row) == 0;
  }
  Trim(newest, in_file);
  const VersionRef version = newest->load(std::memory_order_relaxed);
  const uint32_t row = RowOf(version);
  if (EpochOf(version) == 0 || EpochOf(version) > readers_.oldest_epoch || IsDeleted(version)) return;
  if (live_index() != nullptr) return MoveKey(key, text, version);
  if (!memory_->IsOverlayRow(row)) return;
  retired_rows_.Reserve(1);
  const uint32_t file_row = TakeFileRow();
  if (file_row == 0) return;
  std::memcpy(memory_->row(file_row), memory_->row(row), RowBytes(base_->row_type(), base_->dim()));
  newest->store(MakeVersion(EpochOf(version), false, file_row), std::memory_order_release);
  retired_rows_.Add(readers_.generation, row);
}

void OverlayTable::CompactRows(const uint32_t* rows, size_t count) {
  for (size_t i = 0; i < count; ++i) changed_->FetchRun(rows[i]);
  for (size_t i = 0; i < count; ++i) changed_->FetchNewest(rows[i]);
  for (size_t i = 0; i < count; ++i) {
    std::atomic<VersionRef>* const newest = changed_->Newest(rows[i]);
    if (newest != nullptr) Trim(newest, true);
  }
  uint32_t done = 0;
  for (size_t i = 0; i < count; ++i) {
    if (rows[i] < done) continue;
    const size_t block = memory_->BlockOf(rows[i]);
    if (!memory_->IsCopied(block)) {
      if (block == rejected_) continue;
      const auto [first, end] = memory_->RowsOf(block);
      if (IsWorthIt(first, end) && memory_->Copy(block)) {
        WriteToFileRows(first, end);
      } else {
        rejected_ = block;
      }
      done = end;
      continue;
    }
    done = (rows[i] / ChangedRows::kGroupRows + 1) * ChangedRows::kGroupRows;
    WriteToFileRows(rows[i], rows[i] + 1);
  }
}

// Whether a row of the file can be written, and is not that of another key.
bool OverlayTable::IsWritable(uint32_t row) const {
  return memory_->IsWritable(row) && (is_lent_.empty() || row >= base_->rows() || !is_lent_[row]);
}

// A copy of a block takes memory, and the pages of the file that it replaces can go if nobody else maps them. The memory of
// a resident table cannot go.
bool OverlayTable::IsWorthIt(uint32_t first, uint32_t end) const {
  if (!memory_->has_file_rows()) return false;
  uint32_t changed = 0;
  for (uint32_t row = first; row < end; row += ChangedRows::kGroupRows) {
    changed += ChangedRows::CountOf(changed_->Group(row));
  }
  const uint32_t rows = end - first;
  const bool gives_back = memory_->IsOnlyOne() && base_->resident() == nullptr;
  return gives_back ? changed >= rows / kWorthAlone : changed >= rows - rows / kWorthBesideOthers;
}

// All readers find the versions that the oldest one finds, or newer ones. So nobody reads the rows of the file that have
// been replaced by them, and they can be written. Readers that have found a version before it is written read it on.
void OverlayTable::WriteToFileRows(uint32_t first, uint32_t end) {
  const size_t bytes = RowBytes(base_->row_type(), base_->dim());
  for (uint32_t in_group = first; in_group < end;
       in_group = (in_group / ChangedRows::kGroupRows + 1) * ChangedRows::kGroupRows) {
    const uint32_t group_row = in_group / ChangedRows::kGroupRows * ChangedRows::kGroupRows;
    uint64_t left = changed_->Group(group_row);
    if (left == 0) continue;
    retired_rows_.Reserve(ChangedRows::kGroupRows);
    if (!changed_->Reserve(1, ChangedRows::kMostPlaces)) return;
    for (uint64_t rows = left; rows != 0; rows &= rows - 1) {
      const uint32_t row = group_row + static_cast<uint32_t>(__builtin_ctzll(rows));
      std::atomic<VersionRef>* const newest = changed_->Newest(row);
      Trim(newest, true);
      const VersionRef version = newest->load(std::memory_order_relaxed);
      if (version == 0) left &= ~(rows & -rows);
      if (EpochOf(version) == 0 || EpochOf(version) > readers_.oldest_epoch) continue;
      if (IsDeleted(version)) KeepForNewKeys(row);
      if (IsDeleted(version) || !IsWritable(row)) continue;
      std::memcpy(memory_->row(row), memory_->row(RowOf(version)), bytes);
      left &= ~(rows & -rows);
      retired_rows_.Add(readers_.generation, RowOf(version));
    }
    changed_->Set(group_row, left, readers_.generation);
  }
}

}  // namespace processor
