// SPDX-License-Identifier: Apache-2.0
// Segments for fuzz_delta.cc.
#include <algorithm>
#include <set>

#include "damage.h"
#include "delta_file.h"
#include "inputs.h"

namespace processor::fuzz {
namespace {

// Two sets of keys that have none in common.
template <typename Key, typename MakeKey>
std::pair<std::vector<Key>, std::vector<Key>> RandomKeys(size_t count, std::mt19937_64* random, MakeKey&& make) {
  std::set<Key> keys;
  for (size_t i = 0; i < count; ++i) keys.insert(make());
  std::pair<std::vector<Key>, std::vector<Key>> both;
  for (const Key& key : keys) ((*random)() % 4 == 0 ? both.second : both.first).push_back(key);
  return both;
}

void AddTable(int number, DeltaFileContent* made, std::mt19937_64* random) {
  static constexpr const char* kNames[] = {"a", "b/embedding", "c", "d/e/f/g/h"};
  const auto kind = static_cast<DeltaKeyKind>((*random)() % 3);
  const uint32_t dim = 1 + (*random)() % 5;
  DeltaTable table;
  table.key_kind = kind;
  table.dim = dim;
  const size_t count = 1 + (*random)() % 20;
  if (kind == DeltaKeyKind::kString) {
    const auto [changed, deleted] = RandomKeys<std::string>(
        count, random, [&] { return std::string((*random)() % 9, static_cast<char>('a' + (*random)() % 3)); });
    table.changed = made->Strings(changed);
    table.deleted = made->Strings(deleted);
  } else {
    auto [changed, deleted] =
        RandomKeys<int64_t>(count, random, [&] { return static_cast<int64_t>((*random)() >> (*random)() % 64); });
    if (kind == DeltaKeyKind::kRowNumber) {
      changed.erase(std::remove_if(changed.begin(), changed.end(), [](int64_t row) { return row < 0; }), changed.end());
      deleted.clear();
    }
    table.changed = made->Integers(changed, kind);
    table.deleted = made->Integers(deleted, kind);
  }
  if (kind != DeltaKeyKind::kRowNumber && (*random)() % 3 == 0) {
    table.default_numbers = made->Numbers({0, static_cast<uint32_t>(1 + (*random)() % 9)});
    table.default_rows = made->Floats(2 * dim);
  }
  if (table.changed.count == 0 && table.deleted.count == 0 && table.default_numbers.empty()) return;
  table.rows = made->Floats(table.changed.count * dim);
  table.name = kNames[number];
  made->content.tables.push_back(table);
}

}  // namespace

const char* const kTarget = "fuzz_delta";

// The first byte says what fuzz_delta.cc is to make right; the rest is a file without what is behind its directory.
std::string RandomInput(int number, std::mt19937_64* random) {
  DeltaFileContent made;
  for (int i = 0; i < number % 5; ++i) AddTable(i, &made, random);
  if ((*random)() % 2 == 0) made.content.variables.push_back({"kernel", {2, 3}, made.Floats(6)});
  if ((*random)() % 2 == 0) made.content.variables.push_back({"offset", {}, made.Floats(1)});
  if ((*random)() % 2 == 0) made.content.streams.push_back({"clicks/3", (*random)()});
  made.header.last_epoch += (*random)() % 3;
  if (made.header.compacted()) made.header.chain[0] = 1;
  const std::string bytes = made.Bytes();
  return static_cast<char>((*random)() % 4) + bytes.substr(0, Get<uint64_t>(bytes, 176));
}

std::string DamagedInput(const std::string& input, std::mt19937_64* random) { return DamagedFile(input, random); }

}  // namespace processor::fuzz
