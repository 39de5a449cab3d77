// SPDX-License-Identifier: Apache-2.0
#include "src/live/overlay_table.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>

#include "absl/strings/str_cat.h"
#include "src/live/finite_changes.h"
#include "src/live/row_encoder.h"

namespace processor {
namespace {

// Rows whose memory is on the way while others are written.
constexpr size_t kWritesAhead = 16;

uint64_t BitOf(uint32_t row) { return uint64_t{1} << row % ChangedRows::kGroupRows; }

}  // namespace

// Rows of the file come first, so that those of a group are together; changes of one row stay in their order.
void OverlayTable::SortByRow(std::vector<Change::Target>* targets) {
  const auto before = [](const Change::Target& a, const Change::Target& b) { return a.file_row < b.file_row; };
  if (std::is_sorted(targets->begin(), targets->end(), before)) return;
  std::vector<uint64_t> order(targets->size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = uint64_t{(*targets)[i].file_row} << 32 | i;
  std::sort(order.begin(), order.end());
  std::vector<Change::Target> sorted;
  sorted.reserve(order.size());
  for (const uint64_t at : order) sorted.push_back((*targets)[static_cast<uint32_t>(at)]);
  targets->swap(sorted);
}

// The end of those from `begin` on whose rows are in the same group; keys that are not in the file are alone.
size_t OverlayTable::EndOfGroup(const std::vector<Change::Target>& targets, size_t begin) {
  size_t end = begin + 1;
  const uint32_t row = targets[begin].file_row;
  while (row != kNotFound && end < targets.size() && targets[end].file_row != kNotFound &&
         targets[end].file_row / ChangedRows::kGroupRows == row / ChangedRows::kGroupRows) {
    ++end;
  }
  return end;
}

absl::Status OverlayTable::Create(std::shared_ptr<const EmbeddingTable> base, DeltaKeyKind key_kind, SourceRows source,
                                  std::unique_ptr<OverlayTable>* overlay) {
  std::unique_ptr<OverlayTable> made(new OverlayTable(std::move(base), key_kind, std::move(source)));
  if (absl::Status s = made->CheckSource(); !s.ok()) return s;
  if (absl::Status s = OverlayMemory::Create(*made->base_, &made->memory_); !s.ok()) return s;
  made->changed_ = ChangedRows::Create(made->base_->rows() + made->base_->default_rows());
  if (made->changed_ == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("table '", made->base_->path(), "': no memory for changes"));
  }
  if (absl::Status s = made->FindSharedRows(); !s.ok()) return s;
  *overlay = std::move(made);
  return absl::OkStatus();
}

absl::Status OverlayTable::CheckSource() {
  const bool strings = base_->index_kind() == IndexKind::kString;
  if (key_kind_ != DeltaKeyKind::kRowNumber && strings != (key_kind_ == DeltaKeyKind::kString)) {
    return absl::InvalidArgumentError(absl::StrCat("table '", base_->path(), "': keys are ",
                                                   strings ? "strings" : "numbers",
                                                   ", expected the kind of its source"));
  }
  const uint64_t rows = base_->rows() + base_->default_rows();
  if (source_.rows.empty()) return absl::OkStatus();
  if (source_.rows.size() != rows) {
    return absl::InvalidArgumentError(
        absl::StrCat("table '", base_->path(), "': ", source_.rows.size(), " rows of the source, expected ", rows));
  }
  for (uint32_t row = 0; row < rows; ++row) {
    if (source_.rows[row] >= 0) rows_of_source_.emplace_back(source_.rows[row], row);
  }
  std::sort(rows_of_source_.begin(), rows_of_source_.end());
  return absl::OkStatus();
}

absl::Status OverlayTable::FindSharedRows() {
  if (base_->index_kind() != IndexKind::kInt64 || key_kind_ != DeltaKeyKind::kInt64) return absl::OkStatus();
  std::vector<bool> seen(base_->rows()), shared;
  const TableIndex& index = base_->index();
  for (uint64_t b = 0; b < index.num_buckets; ++b) {
    for (uint32_t i = 0; i < index.buckets[b].count; ++i) {
      const uint32_t row = index.buckets[b].rows[i];
      if (seen[row]) {
        if (shared.empty()) shared.resize(base_->rows());
        shared[row] = true;
      }
      seen[row] = true;
    }
  }
  shared_ = std::move(shared);
  return absl::OkStatus();
}

size_t OverlayTable::bytes() const {
  size_t sum = memory_->bytes() + changed_->bytes() + retired_rows_.bytes() + spare_rows_.capacity() * sizeof(uint32_t);
  sum += erased_keys_.bytes() + moved_keys_.bytes();
  if (owned_key_index_ != nullptr) sum += owned_key_index_->bytes();
  if (owned_live_index_ != nullptr) sum += owned_live_index_->bytes();
  for (const ChangedAt& epoch : log_) {
    sum += epoch.rows.capacity() * sizeof(uint32_t) + epoch.keys.capacity() * sizeof(uint64_t) +
           epoch.deleted.capacity() * sizeof(KeyOfRow);
  }
  return sum;
}

void OverlayTable::SetReaders(const Readers& readers) noexcept {
  readers_ = readers;
  changed_->Release(readers.oldest_generation);
  retired_rows_.Release(readers.oldest_generation, [this](uint32_t row) { memory_->Give(row); });
  retired_indexes_.Release(readers.oldest_generation, [](std::unique_ptr<OverlayIndex>) {});
  memory_->Shrink();
}

void OverlayTable::SetKeyIndex(std::unique_ptr<OverlayIndex> index) {
  retired_indexes_.Reserve(1);
  std::swap(owned_key_index_, index);
  key_index_.store(owned_key_index_.get(), std::memory_order_release);
  if (index != nullptr) retired_indexes_.Add(readers_.generation, std::move(index));
  if (stage_ == IndexStage::kMoving) cursor_ = 0;
}

absl::Status OverlayTable::Prepare(const DeltaTable& delta, Change* change) {
  absl::Status status;
  try {
    status = Fill(delta, change);
  } catch (const std::bad_alloc&) {
    status = absl::ResourceExhaustedError("no memory for changed rows");
  }
  if (!status.ok()) Abandon(change);
  return status;
}

void OverlayTable::Abandon(Change* change) noexcept {
  for (const Change::Target& target : change->targets_) {
    if (target.row != 0) memory_->Give(target.row);
  }
  change->targets_.clear();
}

absl::Status OverlayTable::Fill(const DeltaTable& delta, Change* change) {
  change->targets_.reserve(delta.changed.count + delta.deleted.count + delta.default_numbers.size());
  if (key_kind_ == DeltaKeyKind::kRowNumber) {
    if (absl::Status s = AddSourceRows(delta, change); !s.ok()) return s;
  } else {
    AddKeys(delta.changed, delta.rows, change);
    AddKeys(delta.deleted, nullptr, change);
  }
  for (size_t i = 0; i < delta.default_numbers.size(); ++i) {
    if (delta.default_numbers[i] >= base_->default_rows()) {
      return absl::InvalidArgumentError(
          absl::StrCat("default row ", delta.default_numbers[i], ", expected one of ", base_->default_rows()));
    }
    const auto row = static_cast<uint32_t>(base_->rows() + delta.default_numbers[i]);
    change->targets_.push_back({row, {}, false, false, row, delta.default_rows + i * delta.dim});
  }
  SortByRow(&change->targets_);
  if (absl::Status s = TakeRows(change); !s.ok()) return s;
  if (absl::Status s = ReserveIndexes(change); !s.ok()) return s;
  return Encode(delta, *change);
}

void OverlayTable::AddKeys(const DeltaKeys& keys, const float* rows, Change* change) const {
  std::vector<uint32_t> found(keys.count);
  const uint32_t dim = base_->dim();
  if (keys.kind == DeltaKeyKind::kInt64) {
    FindKeys(absl::MakeConstSpan(keys.integers, keys.count), found.data());
    for (size_t i = 0; i < keys.count; ++i) {
      AddTarget(static_cast<uint64_t>(keys.integers[i]), {}, found[i], rows == nullptr ? nullptr : rows + i * dim,
                change);
    }
    return;
  }
  std::vector<tensorflow::tstring> texts(keys.count);
  for (size_t i = 0; i < keys.count; ++i) texts[i].assign_as_view(keys.string(i).data(), keys.string(i).size());
  FindKeys(absl::MakeConstSpan(texts), found.data());
  for (size_t i = 0; i < keys.count; ++i) {
    AddTarget(StringKey(keys.string(i)), keys.string(i), found[i], rows == nullptr ? nullptr : rows + i * dim, change);
  }
}

void OverlayTable::AddTarget(uint64_t key, std::string_view text, uint32_t file_row, const float* values,
                             Change* change) const {
  const bool by_key = file_row == kNotFound || IsShared(file_row);
  const uint64_t number = key;
  if (!by_key) {
    key = file_row;
    text = {};
  }
  if (values == nullptr) {
    // A deletion of what is not there changes nothing.
    const VersionRef version = NewestOf(key, text, by_key);
    if (version == kDroppedKey || IsDeleted(version) || (version == 0 && file_row == kNotFound)) return;
  }
  change->targets_.push_back({key, text, by_key, values == nullptr, file_row, values, 0, number});
}

absl::Status OverlayTable::AddSourceRows(const DeltaTable& delta, Change* change) const {
  const auto rows = static_cast<int64_t>(base_->rows() + base_->default_rows());
  for (size_t i = 0; i < delta.changed.count; ++i) {
    const int64_t source = delta.changed.integers[i];
    if (source < 0 || (source_.num_rows >= 0 && source >= source_.num_rows)) {
      return absl::InvalidArgumentError(
          absl::StrCat("row ", source, ", expected one from 0 to ", source_.num_rows - 1));
    }
    const float* const values = delta.rows + i * delta.dim;
    if (source_.rows.empty()) {
      if (source < source_.first_row || source - source_.first_row >= rows) continue;  // of another file, or not served
      const auto row = static_cast<uint32_t>(source - source_.first_row);
      change->targets_.push_back({row, {}, false, false, row, values});
      continue;
    }
    auto it = std::lower_bound(rows_of_source_.begin(), rows_of_source_.end(), std::make_pair(source, uint32_t{0}));
    for (; it != rows_of_source_.end() && it->first == source; ++it) {
      change->targets_.push_back({it->second, {}, false, false, it->second, values});
    }
  }
  return absl::OkStatus();
}

VersionRef OverlayTable::NewestOf(uint64_t key, std::string_view text, bool by_key) const {
  const std::atomic<VersionRef>* newest = nullptr;
  if (by_key) {
    newest = owned_key_index_ == nullptr ? nullptr : owned_key_index_->Find(key, text);
  } else {
    newest = changed_->Newest(static_cast<uint32_t>(key));
  }
  return newest == nullptr ? 0 : newest->load(std::memory_order_relaxed);
}

absl::Status OverlayTable::TakeRows(Change* change) {
  if (absl::Status s = memory_->Reserve(static_cast<uint32_t>(change->targets_.size())); !s.ok()) return s;
  for (Change::Target& target : change->targets_) {
    // The row of a deletion leads to what it replaces.
    if (target.deleted && EpochOf(NewestOf(target.key, target.text, target.by_key)) == 0) continue;
    target.row = memory_->Take();
  }
  return absl::OkStatus();
}

absl::Status OverlayTable::Encode(const DeltaTable& delta, const Change& change) {
  for (const Change::Target& target : change.targets_) {
    if (target.deleted) continue;
    if (EncodeRow(base_->row_type(), target.values, delta.dim, memory_->row(target.row))) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        NameOfRow(delta, target.values), ": a number beyond the range of the table's rows, expected a smaller one"));
  }
  return absl::OkStatus();
}

absl::Status OverlayTable::ReserveIndexes(Change* change) {
  ChangedAt& log = change->log_.emplace_back();
  size_t groups = 0, places = 0, text_bytes = 0;
  const std::vector<Change::Target>& targets = change->targets_;
  for (size_t i = 0; i < targets.size();) {
    const size_t end = EndOfGroup(targets, i);
    if (targets[i].file_row != kNotFound) {
      uint64_t rows = 0;
      for (size_t t = i; t < end; ++t) rows |= BitOf(targets[t].file_row);
      ++groups;
      places += changed_->PlacesFor(targets[i].file_row, rows);
    }
    for (; i < end; ++i) {
      if (targets[i].by_key) {
        log.keys.push_back(targets[i].key);
        text_bytes += targets[i].text.size();
      } else {
        log.rows.push_back(targets[i].file_row);
        if (targets[i].deleted) log.deleted.push_back({targets[i].number, targets[i].file_row});
      }
    }
  }
  log.rows.shrink_to_fit();
  if (!changed_->Reserve(groups, places)) {
    return absl::ResourceExhaustedError("no memory for changed rows");
  }
  if (log.keys.empty()) return absl::OkStatus();
  const OverlayIndex* const index = owned_key_index_.get();
  const size_t needed = log.keys.size() + (index == nullptr ? 0 : index->size());
  if (index == nullptr || needed > index->capacity()) {
    // Room for a quarter more, so that all copies together cost as much as a few.
    const size_t left = needed - (index == nullptr ? 0 : index->dropped());
    SetKeyIndex(index == nullptr ? std::make_unique<OverlayIndex>(left + left / 4, key_kind_ == DeltaKeyKind::kString)
                                 : index->Copy(left + left / 4));
  }
  owned_key_index_->ReserveText(text_bytes);
  return absl::OkStatus();
}

void OverlayTable::CommitKey(VersionRef version, const Change::Target& target) noexcept {
  const VersionRef old = NewestOf(target.key, target.text, true);
  if (target.row != 0) memory_->SetReplaced(target.row, old == kDroppedKey ? 0 : old);
  owned_key_index_->Put(target.key, target.text, version);
}

void OverlayTable::Commit(uint32_t epoch, Change* change) noexcept {
  // Requests of the new epoch look at versions.
  in_file_from_.store(kNoEpoch, std::memory_order_release);
  newest_ = epoch;
  const std::vector<Change::Target>& targets = change->targets_;
  for (size_t i = 0; i < targets.size();) {
    const size_t ahead = std::min(i + kWritesAhead, targets.size() - 1);
    if (targets[ahead].file_row != kNotFound) {
      changed_->Fetch(targets[ahead].file_row);
    } else {
      owned_key_index_->Fetch(targets[ahead].key);
    }
    const size_t end = EndOfGroup(targets, i);
    const uint32_t row = targets[i].file_row;
    if (row == kNotFound) {
      CommitKey(MakeVersion(epoch, targets[i].deleted, targets[i].row), targets[i]);
      i = end;
      continue;
    }
    uint64_t rows = changed_->Group(row);
    for (size_t t = i; t < end; ++t) rows |= BitOf(targets[t].file_row);
    changed_->Set(row, rows, readers_.generation);
    for (; i < end; ++i) {
      const Change::Target& target = targets[i];
      const VersionRef version = MakeVersion(epoch, target.deleted, target.row);
      std::atomic<VersionRef>* const newest = changed_->Newest(target.file_row);
      if (target.by_key) {
        CommitKey(version, target);
        newest->store(kKeysDiffer, std::memory_order_release);
        continue;
      }
      const VersionRef before = newest->load(std::memory_order_relaxed);
      rows_in_place_ -= IsInPlace(before);
      if (target.row != 0) memory_->SetReplaced(target.row, before);
      newest->store(version, std::memory_order_release);
    }
  }
  change->targets_.clear();
  change->log_.front().epoch = epoch;
  log_.splice(log_.end(), change->log_);
}

}  // namespace processor
