// SPDX-License-Identifier: Apache-2.0
// Changes of tables for tests, as a segment has them.
#ifndef PROCESSOR_TESTS_LIVE_DELTA_FIXTURE_H_
#define PROCESSOR_TESTS_LIVE_DELTA_FIXTURE_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "src/tables/delta_content.h"

namespace processor {

/// Owns what a DeltaTable refers to. Keys are int64_t or std::string.
template <typename Key>
struct DeltaFixture {
  uint32_t dim = 4;
  DeltaKeyKind kind = std::is_same_v<Key, std::string> ? DeltaKeyKind::kString : DeltaKeyKind::kInt64;
  std::map<Key, std::vector<float>> changed;
  std::set<Key> deleted;
  std::map<uint32_t, std::vector<float>> defaults;

  /// Returns a view, which is valid until the next call.
  DeltaTable Table() {
    std::vector<Key> keys;
    rows_.clear();
    for (const auto& [key, row] : changed) {
      keys.push_back(key);
      rows_.insert(rows_.end(), row.begin(), row.end());
    }
    DeltaTable table;
    table.key_kind = kind;
    table.dim = dim;
    table.changed = changed_.Of(keys, kind);
    table.rows = rows_.data();
    table.deleted = deleted_.Of(std::vector<Key>(deleted.begin(), deleted.end()), kind);
    numbers_.clear();
    default_rows_.clear();
    for (const auto& [number, row] : defaults) {
      numbers_.push_back(number);
      default_rows_.insert(default_rows_.end(), row.begin(), row.end());
    }
    table.default_numbers = numbers_;
    table.default_rows = default_rows_.data();
    return table;
  }

 private:
  struct Keys {
    std::vector<int64_t> integers;
    std::vector<uint64_t> offsets;
    std::string bytes;

    DeltaKeys Of(const std::vector<Key>& keys, DeltaKeyKind kind) {
      DeltaKeys made;
      made.kind = kind;
      made.count = keys.size();
      if constexpr (std::is_same_v<Key, std::string>) {
        bytes.clear();
        offsets.assign(1, 0);
        for (const std::string& key : keys) {
          bytes += key;
          offsets.push_back(bytes.size());
        }
        made.offsets = offsets.data();
        made.bytes = bytes.data();
      } else {
        integers = keys;
        made.integers = integers.data();
      }
      return made;
    }
  };

  Keys changed_, deleted_;
  std::vector<float> rows_, default_rows_;
  std::vector<uint32_t> numbers_;
};

}  // namespace processor

#endif  // PROCESSOR_TESTS_LIVE_DELTA_FIXTURE_H_
