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

template <typename Key>
void TableView::Find(absl::Span<const Key> keys, uint32_t* rows) const {
  if (row_index_ == nullptr && key_index_ == nullptr) return base().FindRows(keys, rows);
  base().FindKeys(keys, rows);
  for (size_t i = 0; i < keys.size(); i += kBlockKeys) {
    LayOver(keys.data() + i, std::min(kBlockKeys, keys.size() - i), rows + i);
  }
}

template <typename Key>
VersionRef TableView::VersionOfKey(const Key& key) const {
  return key_index_ == nullptr ? 0 : overlay_->At(key_index_->Find(NumberOf(key), TextOf(key)), epoch_);
}

template <typename Key>
uint32_t TableView::AbsentRow(const Key& key) const {
  const uint32_t row = base().AbsentRow(key);
  if (row >= kRefusedRow || row_index_ == nullptr || !overlay_->Changed(row)) return row;
  const VersionRef version = overlay_->At(row_index_->Find(row), epoch_);
  return version == 0 ? row : RowOf(version);
}

// In rounds, each of which fetches what the next will read: bits, entries.
template <typename Key>
void TableView::LayOver(const Key* keys, size_t n, uint32_t* rows) const {
  uint32_t changed[kBlockKeys], absent[kBlockKeys];
  size_t num_changed = 0, num_absent = 0;
  for (size_t i = 0; i < n; ++i) {
    if (rows[i] != kNotFound) overlay_->FetchChanged(rows[i]);
  }
  for (size_t i = 0; i < n; ++i) {
    const bool is_absent = rows[i] == kNotFound;
    absent[num_absent] = static_cast<uint32_t>(i);
    num_absent += is_absent;
    changed[num_changed] = static_cast<uint32_t>(i);
    num_changed += !is_absent && overlay_->Changed(is_absent ? 0 : rows[i]);
  }
  if (row_index_ != nullptr) {
    for (size_t c = 0; c < num_changed; ++c) row_index_->Fetch(rows[changed[c]]);
    for (size_t c = 0; c < num_changed; ++c) {
      const uint32_t i = changed[c];
      VersionRef version = overlay_->At(row_index_->Find(rows[i]), epoch_);
      if (version == kKeysDiffer) version = VersionOfKey(keys[i]);
      if (version == 0) continue;
      rows[i] = IsDeleted(version) ? AbsentRow(keys[i]) : RowOf(version);
    }
  }
  if (key_index_ != nullptr) {
    for (size_t a = 0; a < num_absent; ++a) key_index_->Fetch(NumberOf(keys[absent[a]]));
  }
  for (size_t a = 0; a < num_absent; ++a) {
    const uint32_t i = absent[a];
    const VersionRef version = VersionOfKey(keys[i]);
    rows[i] = version == 0 || IsDeleted(version) ? AbsentRow(keys[i]) : RowOf(version);
  }
}

}  // namespace processor
