// SPDX-License-Identifier: Apache-2.0
#include "src/live/overlay_table.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "src/base/mapped_memory.h"
#include "src/live/row_encoder.h"

namespace processor {
namespace {

// Keys whose memory is on the way while others are written.
constexpr size_t kWritesAhead = 16;

std::string RowName(const DeltaTable& delta, const float* values) {
  const auto at = static_cast<size_t>(values - delta.rows) / delta.dim;
  if (delta.rows == nullptr || values < delta.rows || at >= delta.changed.count) {
    const auto number = static_cast<size_t>(values - delta.default_rows) / delta.dim;
    return absl::StrCat("default row ", delta.default_numbers[number]);
  }
  if (delta.changed.kind == DeltaKeyKind::kRowNumber) return absl::StrCat("row ", delta.changed.integers[at]);
  if (delta.changed.kind == DeltaKeyKind::kInt64) return absl::StrCat("key ", delta.changed.integers[at]);
  return absl::StrCat("key '", absl::CHexEscape(delta.changed.string(at).substr(0, 100)), "'");
}

// Makes room for more elements, and for as many again, so that all growth together costs as much as the last one.
template <typename T>
void ReserveMore(size_t more, std::vector<T>* elements) {
  const size_t needed = elements->size() + more;
  if (needed > elements->capacity()) elements->reserve(2 * needed);
}

}  // namespace

absl::Status OverlayTable::Create(std::shared_ptr<const EmbeddingTable> base, DeltaKeyKind key_kind, SourceRows source,
                                  std::unique_ptr<OverlayTable>* overlay) {
  std::unique_ptr<OverlayTable> made(new OverlayTable(std::move(base), key_kind, std::move(source)));
  if (absl::Status s = made->CheckSource(); !s.ok()) return s;
  if (absl::Status s = OverlayMemory::Create(*made->base_, &made->memory_); !s.ok()) return s;
  const uint64_t rows = made->base_->rows() + made->base_->default_rows();
  made->changed_bytes_ = (rows / 64 + 1) * sizeof(uint64_t);
  made->changed_ = static_cast<std::atomic<uint64_t>*>(MapMemory(made->changed_bytes_, alignof(uint64_t)));
  if (made->changed_ == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("table '", made->base_->path(), "': no memory for changes"));
  }
  if (absl::Status s = made->FindSharedRows(); !s.ok()) return s;
  *overlay = std::move(made);
  return absl::OkStatus();
}

OverlayTable::~OverlayTable() {
  if (changed_ != nullptr) UnmapMemory(changed_, changed_bytes_);
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
  size_t sum = memory_->bytes() + changed_bytes_;
  if (row_index_ != nullptr) sum += row_index_->bytes();
  if (key_index_ != nullptr) sum += key_index_->bytes();
  return sum;
}

void OverlayTable::Reclaim(uint32_t oldest) noexcept {
  for (; reclaimed_ < superseded_.size() && superseded_[reclaimed_].epoch <= oldest; ++reclaimed_) {
    const Superseded& old = superseded_[reclaimed_];
    memory_->replaced(RowOf(old.by)).store(0, std::memory_order_relaxed);
    free_rows_.push_back(old.row);  // which has room for all rows
    if (!IsDeleted(old.by)) continue;
    // The row of a deletion only leads to what it replaced. If there is a later version, that one gives it back.
    OverlayIndex& index = old.by_key ? *key_index_ : *row_index_;
    std::atomic<VersionRef>* const newest = index.FindForWriting(old.key, old.by);
    if (newest == nullptr) continue;
    newest->store(old.in_file ? MakeVersion(EpochOf(old.by), true, 0) : kDroppedKey, std::memory_order_release);
    free_rows_.push_back(RowOf(old.by));
  }
  if (2 * reclaimed_ < superseded_.size()) return;
  superseded_.erase(superseded_.begin(), superseded_.begin() + static_cast<std::ptrdiff_t>(reclaimed_));
  reclaimed_ = 0;
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
    if (target.row != 0) free_rows_.push_back(target.row);
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
  if (absl::Status s = TakeRows(change); !s.ok()) return s;
  ReserveIndexes(*change);
  return Encode(delta, *change);
}

void OverlayTable::AddKeys(const DeltaKeys& keys, const float* rows, Change* change) const {
  std::vector<uint32_t> found(keys.count);
  const uint32_t dim = base_->dim();
  if (keys.kind == DeltaKeyKind::kInt64) {
    base_->FindKeys(absl::MakeConstSpan(keys.integers, keys.count), found.data());
    for (size_t i = 0; i < keys.count; ++i) {
      AddTarget(static_cast<uint64_t>(keys.integers[i]), {}, found[i], rows == nullptr ? nullptr : rows + i * dim,
                change);
    }
    return;
  }
  std::vector<tensorflow::tstring> texts(keys.count);
  for (size_t i = 0; i < keys.count; ++i) texts[i].assign_as_view(keys.string(i).data(), keys.string(i).size());
  base_->FindKeys(absl::MakeConstSpan(texts), found.data());
  for (size_t i = 0; i < keys.count; ++i) {
    AddTarget(StringKey(keys.string(i)), keys.string(i), found[i], rows == nullptr ? nullptr : rows + i * dim, change);
  }
}

void OverlayTable::AddTarget(uint64_t key, std::string_view text, uint32_t file_row, const float* values,
                             Change* change) const {
  const bool by_key = file_row == kNotFound || IsShared(file_row);
  if (!by_key) {
    key = file_row;
    text = {};
  }
  if (values == nullptr) {
    // A deletion of what is not there changes nothing.
    const OverlayIndex* const index = IndexOf(by_key);
    const auto* const newest = index == nullptr ? nullptr : index->Find(key, text);
    const VersionRef version = newest == nullptr ? 0 : newest->load(std::memory_order_relaxed);
    if (version == kDroppedKey || IsDeleted(version) || (version == 0 && file_row == kNotFound)) return;
  }
  change->targets_.push_back({key, text, by_key, values == nullptr, file_row, values});
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

bool OverlayTable::Replaces(const Change::Target& target) const {
  const OverlayIndex* const index = IndexOf(target.by_key);
  const auto* const newest = index == nullptr ? nullptr : index->Find(target.key, target.text);
  return newest != nullptr && EpochOf(newest->load(std::memory_order_relaxed)) != 0;
}

absl::Status OverlayTable::TakeRows(Change* change) {
  std::vector<Change::Target>& targets = change->targets_;
  const size_t fresh = targets.size() - std::min(targets.size(), free_rows_.size());
  if (fresh > memory_->capacity() - used_rows_) {
    return absl::ResourceExhaustedError(
        absl::StrCat(used_rows_ + fresh, " changed rows, expected at most ", memory_->capacity()));
  }
  if (absl::Status s = memory_->Commit(used_rows_ + static_cast<uint32_t>(fresh)); !s.ok()) return s;
  // Room for all rows, so that giving them back needs no memory.
  ReserveMore(used_rows_ + fresh - free_rows_.size(), &free_rows_);
  for (Change::Target& target : targets) {
    if (target.deleted && !Replaces(target)) continue;
    if (free_rows_.empty()) {
      target.row = memory_->first_row() + used_rows_++;
    } else {
      target.row = free_rows_.back();
      free_rows_.pop_back();
    }
  }
  return absl::OkStatus();
}

absl::Status OverlayTable::Encode(const DeltaTable& delta, const Change& change) {
  for (const Change::Target& target : change.targets_) {
    if (target.deleted) continue;
    for (uint32_t e = 0; e < delta.dim; ++e) {
      if (std::isfinite(target.values[e])) continue;
      return absl::InvalidArgumentError(absl::StrCat(RowName(delta, target.values), ": element ", e, " is ",
                                                     target.values[e], ", expected a finite number"));
    }
    if (EncodeRow(base_->row_type(), target.values, delta.dim, memory_->row(target.row))) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(RowName(delta, target.values), ": a number beyond the range of fp16, expected smaller ones"));
  }
  return absl::OkStatus();
}

void OverlayTable::ReserveIndexes(const Change& change) {
  size_t rows = 0, keys = 0, text_bytes = 0;
  for (const Change::Target& target : change.targets_) {
    if (target.by_key) {
      ++keys;
      text_bytes += target.text.size();
    }
    rows += target.file_row != kNotFound;
  }
  const auto reserve = [](size_t more, bool strings, std::shared_ptr<OverlayIndex>* index) {
    if (more == 0) return;
    const size_t size = *index == nullptr ? 0 : (*index)->size();
    if (*index != nullptr && size + more <= (*index)->capacity()) return;
    // Twice as large, so that all copies together cost as much as the last one.
    const size_t capacity = 2 * (size + more);
    *index = *index == nullptr ? std::make_shared<OverlayIndex>(capacity, strings)
                               : std::shared_ptr<OverlayIndex>((*index)->Copy(capacity, kDroppedKey));
  };
  reserve(rows, false, &row_index_);
  reserve(keys, key_kind_ == DeltaKeyKind::kString, &key_index_);
  if (key_index_ != nullptr) key_index_->ReserveText(text_bytes);
  ReserveMore(change.targets_.size(), &superseded_);
}

void OverlayTable::MarkChanged(uint32_t row) noexcept {
  std::atomic<uint64_t>& word = changed_[row / 64];
  word.store(word.load(std::memory_order_relaxed) | uint64_t{1} << row % 64, std::memory_order_relaxed);
}

void OverlayTable::Commit(uint32_t epoch, Change* change) noexcept {
  const std::vector<Change::Target>& targets = change->targets_;
  for (size_t i = 0; i < targets.size(); ++i) {
    if (i + kWritesAhead < targets.size()) {
      const Change::Target& next = targets[i + kWritesAhead];
      IndexOf(next.by_key)->Fetch(next.key);
    }
    const Change::Target& target = targets[i];
    if (target.file_row != kNotFound) {
      if (target.by_key) {
        std::atomic<VersionRef>* const of_row = row_index_->FindOrAdd(target.file_row);
        of_row->store(kKeysDiffer, std::memory_order_release);
      }
      MarkChanged(target.file_row);
    }
    OverlayIndex& index = target.by_key ? *key_index_ : *row_index_;
    std::atomic<VersionRef>* const newest = index.FindOrAdd(target.key, target.text);
    VersionRef old = newest->load(std::memory_order_relaxed);
    if (old == kDroppedKey) old = 0;
    const VersionRef version = MakeVersion(epoch, target.deleted, target.row);
    if (target.row != 0) memory_->replaced(target.row).store(old, std::memory_order_relaxed);
    newest->store(version, std::memory_order_release);
    if (RowOf(old) == 0) continue;
    superseded_.push_back({epoch, RowOf(old), version, target.key, target.by_key, target.file_row != kNotFound});
  }
  change->targets_.clear();
}

}  // namespace processor
