// SPDX-License-Identifier: Apache-2.0
// The index of an overlay in memory, which takes the place of the file's.
#include <algorithm>
#include <cstring>
#include <new>

#include "src/live/overlay_table.h"

namespace processor {
namespace {

// The index is made when a 32nd of the keys are new or deleted: before that, it would cost more than it saves.
constexpr uint64_t kWorthAnIndex = 32;
// Buckets, or places of new keys, between two looks at the clock.
constexpr size_t kBucketsAtOnce = 256;

}  // namespace

// Keys of a direct file are not in an index. Where keys share rows, a row is not that of one key. The pages of the file's
// index only go if nobody else reads it, and the rows of a tiered table cannot be given to other keys.
bool OverlayTable::IsIndexWorthIt() const {
  if (!memory_->has_file_rows()) return false;
  if (owned_key_index_ == nullptr || base_->index_kind() == IndexKind::kDirect || !shared_.empty()) return false;
  const size_t changed = owned_key_index_->size() - owned_key_index_->dropped() + spare_rows_.size();
  return changed > base_->rows() / kWorthAnIndex && memory_->IsOnlyOne();
}

bool OverlayTable::AdvanceIndex(std::chrono::steady_clock::time_point until) noexcept {
  try {
    return DoAdvanceIndex(until);
  } catch (const std::bad_alloc&) {
    return false;  // Another time. What is done is complete.
  }
}

bool OverlayTable::DoAdvanceIndex(std::chrono::steady_clock::time_point until) {
  if (stage_ == IndexStage::kFile) {
    if (!IsIndexWorthIt()) return false;
    const bool strings = base_->index_kind() == IndexKind::kString;
    const uint64_t text_bytes = strings ? base_->index().key_offsets[base_->rows()] : 0;
    owned_live_index_ = LiveIndex::Create(base_->index(), strings, base_->rows(), text_bytes);
    if (owned_live_index_ == nullptr) throw std::bad_alloc();
    stage_ = IndexStage::kCopied;
    cursor_ = 0;
  }
  if (stage_ == IndexStage::kCopied) {
    if (CopyIndex(until)) return true;
    PublishIndex();
  }
  if (stage_ == IndexStage::kErasing) {
    while (cursor_ < owned_live_index_->num_buckets) {
      const size_t end = std::min<size_t>(cursor_ + kBucketsAtOnce, owned_live_index_->num_buckets);
      for (; cursor_ < end; ++cursor_) {
        owned_live_index_->ForEach(cursor_, [this](uint64_t key, uint32_t row) { EraseKey(key, row); });
      }
      if (std::chrono::steady_clock::now() >= until) return true;
    }
    stage_ = IndexStage::kErased;
    erased_in_ = readers_.generation;
  }
  if (stage_ == IndexStage::kErased) {
    // Those who found keys in the file's index have to leave first.
    if (readers_.oldest_generation <= erased_in_) return false;
    if (memory_->IsOnlyOne()) base_->DropIndexPages();
    stage_ = IndexStage::kMoving;
    cursor_ = without_rows_ = 0;
  }
  // Rows may have become free since the last time.
  if (stage_ == IndexStage::kMoved && without_rows_ != 0 && spare_rows_.size() > without_rows_ / 4) {
    stage_ = IndexStage::kMoving;
    cursor_ = without_rows_ = 0;
  }
  return stage_ == IndexStage::kMoving && MoveKeys(until);
}

bool OverlayTable::CopyIndex(std::chrono::steady_clock::time_point until) {
  const TableIndex& file = base_->index();
  while (cursor_ < file.num_buckets) {
    const size_t count = std::min<size_t>(kBucketsAtOnce, file.num_buckets - cursor_);
    if (!owned_live_index_->Copy(file, cursor_, count)) {
      owned_live_index_.reset();
      stage_ = IndexStage::kFile;
      throw std::bad_alloc();
    }
    cursor_ += count;
    if (std::chrono::steady_clock::now() >= until) return true;
  }
  return false;
}

// From now on, a row of the file is free when its key has been erased.
void OverlayTable::PublishIndex() {
  live_index_.store(owned_live_index_.get(), std::memory_order_release);
  spare_rows_.clear();
  std::fill(is_spare_.begin(), is_spare_.end(), false);
  stage_ = IndexStage::kErasing;
  cursor_ = 0;
}

bool OverlayTable::MoveKeys(std::chrono::steady_clock::time_point until) {
  while (cursor_ < owned_key_index_->places()) {
    const size_t count = std::min(kBucketsAtOnce, owned_key_index_->places() - cursor_);
    owned_key_index_->ForEachIn(cursor_, count,
                                [this](uint64_t key, std::string_view text, std::atomic<VersionRef>* newest) {
                                  CompactNewKey(key, text, newest);
                                });
    cursor_ += count;
    if (std::chrono::steady_clock::now() >= until) return true;
  }
  stage_ = IndexStage::kMoved;
  return false;
}

// Removes a key that is deleted for all readers; its row waits for those who found it.
void OverlayTable::EraseKey(uint64_t key, uint32_t row) {
  if (live_index() == nullptr || !IsUnread(row)) return;
  erased_keys_.Reserve(1);
  LiveIndex::Place place;
  if (!owned_live_index_->Erase(key, row, &place)) return;  // it was erased before
  Trim(changed_->Newest(row), true);
  // If it has just moved, the key is added again as one that never had a version.
  if (owned_key_index_ != nullptr) owned_key_index_->Drop(key, owned_live_index_->Text(row));
  erased_keys_.Add(readers_.generation, {place, row});
}

// Returns a row of the file for a new key; 0: there is none. A row that was lent to it is its own when no other key has it.
uint32_t OverlayTable::TakeRowFor(VersionRef version) {
  const uint32_t before = RowOf(version);
  if (!memory_->IsOverlayRow(before) && is_spare_[before]) {
    is_spare_[before] = false;
    return before;
  }
  if (spare_rows_.empty()) return 0;
  const uint32_t row = spare_rows_.back();
  for (const size_t block : memory_->BlocksOf(row)) {
    if (memory_->IsCopied(block)) continue;
    if (!memory_->Copy(block)) return 0;
    const auto [first, end] = memory_->RowsOf(block);
    WriteToFileRows(first, end);
  }
  retired_rows_.Reserve(1);
  spare_rows_.pop_back();
  return row;
}

// Gives a new key, which has this version for all readers, a row of the file and a place in the index.
void OverlayTable::MoveKey(uint64_t key, std::string_view text, VersionRef version) {
  if (stage_ < IndexStage::kMoving) return;  // it comes in that stage
  moved_keys_.Reserve(1);
  const uint32_t before = RowOf(version);
  const uint32_t row = TakeRowFor(version);
  if (row == 0) {
    ++without_rows_;
    return;
  }
  if (row != before) {
    std::memcpy(memory_->row(row), memory_->row(before), RowBytes(base_->row_type(), base_->dim()));
  }
  if (!owned_live_index_->Insert(key, text, row)) {
    if (row == before) {
      is_spare_[row] = true;
    } else {
      spare_rows_.push_back(row);  // which had it
    }
    return;
  }
  moved_keys_.Add(readers_.generation, {key, version, row});
  if (memory_->IsOverlayRow(before)) retired_rows_.Add(readers_.generation, before);
}

// Uses again what only readers of earlier generations may have found.
void OverlayTable::UseErasedAgain() {
  moved_keys_.Release(readers_.oldest_generation, [&](const MovedKey& moved) {
    ReserveMore(lent_ + 1, &spare_rows_);
    owned_key_index_->ForEach(moved.key, [&](uint64_t, std::string_view, std::atomic<VersionRef>* newest) {
      if (newest->load(std::memory_order_relaxed) == moved.version) {
        newest->store(kDroppedKey, std::memory_order_release);
      }
    });
    const uint32_t before = RowOf(moved.version);
    if (!memory_->IsOverlayRow(before)) EndLoan(before);
  });
  erased_keys_.Release(readers_.oldest_generation, [&](const ErasedKey& erased) {
    const uint32_t row = erased.row;
    ReserveMore(lent_ + 1, &spare_rows_);
    if (!changed_->Reserve(1, ChangedRows::kMostPlaces)) throw std::bad_alloc();
    owned_live_index_->Free(erased.place);
    changed_->Set(row, changed_->Group(row) & ~(uint64_t{1} << row % ChangedRows::kGroupRows), readers_.generation);
    if (!is_lent_.empty() && is_lent_[row]) {
      is_spare_[row] = true;
    } else if (row != 0) {  // which is none in a version
      spare_rows_.push_back(row);
    }
  });
}

}  // namespace processor
