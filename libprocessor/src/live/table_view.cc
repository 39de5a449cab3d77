// SPDX-License-Identifier: Apache-2.0
#include "src/live/table_view.h"

#include <algorithm>
#include <string_view>

namespace processor {
namespace {

// Keys of which each round fetches what the next one reads: so many that enough of them have changed to be on the way
// together.
constexpr size_t kBlockKeys = 1024;

uint64_t NumberOf(int64_t key) { return static_cast<uint64_t>(key); }
uint64_t NumberOf(const tensorflow::tstring& key) { return StringKey({key.data(), key.size()}); }
std::string_view TextOf(int64_t) { return {}; }
std::string_view TextOf(const tensorflow::tstring& key) { return {key.data(), key.size()}; }

}  // namespace

void TableView::FindRows(absl::Span<const int64_t> keys, uint32_t* rows) const { Find(keys, rows); }
void TableView::FindRows(absl::Span<const tensorflow::tstring> keys, uint32_t* rows) const { Find(keys, rows); }

void TableView::FetchIndex(absl::Span<const int64_t> keys) const {
  const LiveIndex* const index = overlay_->live_index();
  if (index == nullptr) return base().FetchIndex(keys);
  for (const int64_t key : keys) index->Fetch(NumberOf(key));
}

void TableView::FetchIndex(absl::Span<const tensorflow::tstring> keys) const {
  const LiveIndex* const index = overlay_->live_index();
  if (index == nullptr) return base().FetchIndex(keys);
  for (const tensorflow::tstring& key : keys) index->Fetch(NumberOf(key));
}

template <typename Key>
void TableView::Find(absl::Span<const Key> keys, uint32_t* rows) const {
  const bool in_file = overlay_->IsInFile(epoch_);
  if (in_file && overlay_->HasKeysOfFile()) return base().FindRows(keys, rows);
  const bool any_absent = overlay_->FindKeys(keys, rows) != 0;
  if (in_file && !any_absent) return;
  for (size_t i = 0; i < keys.size(); i += kBlockKeys) {
    const size_t n = std::min(kBlockKeys, keys.size() - i);
    if (!in_file) LayOver(keys.data() + i, n, any_absent, rows + i);
    if (any_absent) FindAbsent(keys.data() + i, n, rows + i);
  }
}

template <typename Key>
VersionRef TableView::VersionOfKey(const OverlayIndex* index, const Key& key) const {
  return index == nullptr ? 0 : overlay_->At(index->Find(NumberOf(key), TextOf(key)), epoch_);
}

template <typename Key>
uint32_t TableView::AbsentRow(const Key& key) const {
  const uint32_t row = base().AbsentRow(key);
  if (row >= kRefusedRow) return row;
  const VersionRef version = overlay_->At(overlay_->changed_rows().Newest(row), epoch_);
  return version == 0 ? row : RowOf(version);
}

// Keys that the file does not have.
template <typename Key>
void TableView::FindAbsent(const Key* keys, size_t n, uint32_t* rows) const {
  const OverlayIndex* const index = overlay_->key_index();
  uint32_t absent[kBlockKeys];
  size_t num_absent = 0;
  for (size_t i = 0; i < n; ++i) {
    absent[num_absent] = static_cast<uint32_t>(i);
    num_absent += rows[i] == kNotFound;
  }
  if (index != nullptr) {
    for (size_t a = 0; a < num_absent; ++a) index->Fetch(NumberOf(keys[absent[a]]));
  }
  for (size_t a = 0; a < num_absent; ++a) {
    const Key& key = keys[absent[a]];
    const VersionRef version = VersionOfKey(index, key);
    rows[absent[a]] = version == 0 || IsDeleted(version) ? AbsentRow(key) : RowOf(version);
  }
}

// Finds the keys whose rows have bits, without branches, which would be predicted wrongly.
template <bool kAnyAbsent>
size_t FindChanged(const ChangedRows& changed, uint32_t rows_of_file, const uint32_t* rows, size_t n, uint32_t* found) {
  size_t num_found = 0;
  for (size_t i = 0; i < n; ++i) {
    const bool in_file = !kAnyAbsent || rows[i] < rows_of_file;
    const uint32_t row = in_file ? rows[i] : 0;
    found[num_found] = static_cast<uint32_t>(i);
    num_found += in_file & ChangedRows::Has(changed.Group(row), row);
  }
  return num_found;
}

// Keys that the file has. In rounds, each of which fetches what the next will read.
template <typename Key>
void TableView::LayOver(const Key* keys, size_t n, bool any_absent, uint32_t* rows) const {
  const ChangedRows& changed = overlay_->changed_rows();
  const auto rows_of_file = static_cast<uint32_t>(base().rows() + base().default_rows());
  uint32_t found[kBlockKeys];
  const size_t num_found = any_absent ? FindChanged<true>(changed, rows_of_file, rows, n, found)
                                      : FindChanged<false>(changed, rows_of_file, rows, n, found);
  for (size_t f = 0; f < num_found; ++f) changed.FetchRun(rows[found[f]]);
  for (size_t f = 0; f < num_found; ++f) changed.FetchNewest(rows[found[f]]);
  for (size_t f = 0; f < num_found; ++f) {
    const uint32_t i = found[f];
    VersionRef version = overlay_->At(changed.Newest(rows[i]), epoch_);
    if (version == kKeysDiffer) version = VersionOfKey(overlay_->key_index(), keys[i]);
    if (version == 0) continue;
    rows[i] = IsDeleted(version) ? AbsentRow(keys[i]) : RowOf(version);
  }
}

}  // namespace processor
