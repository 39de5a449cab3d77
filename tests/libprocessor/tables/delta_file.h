// SPDX-License-Identifier: Apache-2.0
// Segments for tests: contents that own their arrays, and damage that checksums do not show.
#ifndef PROCESSOR_TESTS_TABLES_DELTA_FILE_H_
#define PROCESSOR_TESTS_TABLES_DELTA_FILE_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/sha256.h"
#include "src/tables/delta_writer.h"
#include "table_file.h"

namespace processor {

/// The content of a segment, and its header.
class DeltaFileContent {
 public:
  DeltaHeader header = [] {
    DeltaHeader made;
    for (size_t i = 0; i < made.lineage.size(); ++i) made.lineage[i] = static_cast<uint8_t>(i);
    made.first_epoch = made.last_epoch = made.term = 1;
    made.previous = ChainOfExport(made.lineage);
    return made;
  }();
  DeltaContent content;

  DeltaTable& AddTable(std::string_view name, DeltaKeyKind kind, uint32_t dim) {
    DeltaTable& table = content.tables.emplace_back();
    table.name = name;
    table.key_kind = table.changed.kind = table.deleted.kind = kind;
    table.dim = dim;
    return table;
  }

  DeltaKeys Integers(std::vector<int64_t> keys, DeltaKeyKind kind = DeltaKeyKind::kInt64) {
    const std::vector<int64_t>& kept = integers_.emplace_back(std::move(keys));
    return {kind, kept.size(), kept.data()};
  }

  DeltaKeys Strings(const std::vector<std::string>& keys) {
    std::vector<uint64_t>& offsets = offsets_.emplace_back(1, 0);
    std::string& bytes = bytes_.emplace_back();
    for (const std::string& key : keys) {
      bytes += key;
      offsets.push_back(bytes.size());
    }
    return {DeltaKeyKind::kString, keys.size(), nullptr, offsets.data(), bytes.data()};
  }

  /// Returns `count` numbers that differ.
  const float* Floats(size_t count) {
    std::vector<float>& kept = floats_.emplace_back(count);
    for (size_t i = 0; i < count; ++i) kept[i] = 0.25f * static_cast<float>(i) - 3;
    return kept.data();
  }

  absl::Span<const uint32_t> Numbers(std::vector<uint32_t> numbers) {
    return numbers_.emplace_back(std::move(numbers));
  }

  std::string Bytes() const {
    std::string bytes;
    const absl::Status status = MakeDelta(header, content, &bytes);
    if (!status.ok()) throw std::runtime_error(std::string(status.message()));
    return bytes;
  }

 private:
  std::deque<std::vector<int64_t>> integers_;
  std::deque<std::vector<uint64_t>> offsets_;
  std::deque<std::string> bytes_;
  std::deque<std::vector<float>> floats_;
  std::deque<std::vector<uint32_t>> numbers_;
};

/// Returns a content with tables of each kind, variables and streams.
inline DeltaFileContent VariedDelta() {
  DeltaFileContent made;
  DeltaTable& integers = made.AddTable("a", DeltaKeyKind::kInt64, 3);
  integers.changed = made.Integers({-5, 0, 7, 1 << 20});
  integers.rows = made.Floats(12);
  integers.deleted = made.Integers({-6, 8});
  integers.default_numbers = made.Numbers({0, 2});
  integers.default_rows = made.Floats(6);
  DeltaTable& strings = made.AddTable("b", DeltaKeyKind::kString, 1);
  strings.changed = made.Strings({"", "one", "two"});
  strings.rows = made.Floats(3);
  strings.deleted = made.Strings({"three"});
  DeltaTable& rows = made.AddTable("c", DeltaKeyKind::kRowNumber, 2);
  rows.changed = made.Integers({3, 4}, DeltaKeyKind::kRowNumber);
  rows.rows = made.Floats(4);
  made.content.variables = {{"bias", {}, made.Floats(1)}, {"kernel", {2, 5}, made.Floats(10)}};
  made.content.streams = {{"clicks/0", 17}, {"clicks/1", UINT64_MAX}};
  return made;
}

/// Makes the checksums of header and blocks and the hash right again, as far as their places lie in the file.
inline void RepairDelta(std::string* bytes) {
  if (bytes->size() < kDeltaHeaderBytes + sizeof(ChainHash)) return;
  Put<uint32_t>(bytes, 252, Crc32c(bytes->data(), 252));
  const uint64_t end = Get<uint64_t>(*bytes, 176), last = bytes->size() - sizeof(ChainHash);
  if (end >= kDeltaHeaderBytes && end <= last) {
    uint64_t place = end;
    for (uint64_t at = kDeltaHeaderBytes; at < end && place + 4 <= last; at += kDeltaBlockBytes, place += 4) {
      Put<uint32_t>(bytes, place, Crc32c(bytes->data() + at, std::min<uint64_t>(kDeltaBlockBytes, end - at)));
    }
  }
  Sha256 hash;
  hash.Update(std::string_view(*bytes).substr(0, last));
  Put(bytes, last, hash.FinishBytes());
}

}  // namespace processor

#endif  // PROCESSOR_TESTS_TABLES_DELTA_FILE_H_
