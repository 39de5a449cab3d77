// SPDX-License-Identifier: Apache-2.0
// Any bytes as a table's file: it is refused, or every key leads to a row inside it, the one that its index holds.
//
// The first byte of an input: 1, do not make the checksums right, without which hardly any file would get past them; 2, take
// the header as it is, without making magic number, version and sizes right; 4, make it one of version 2. The rest is the file
// without the zeros between header and row data, which a search would waste its time on.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "memory_file.h"
#include "src/tables/embedding_table.h"
#include "table_file.h"

namespace {

using processor::EmbeddingTable;
using processor::IndexKind;
using processor::kTableHeaderBytes;
using processor::TableHeader;
using processor::fuzz::MemoryFile;
using processor::fuzz::Require;
using tensorflow::tstring;

std::string FileOf(const uint8_t* data, size_t size) {
  const uint8_t mode = data[0];
  std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (bytes.size() < kTableHeaderBytes) return bytes;
  bytes.insert(kTableHeaderBytes, bytes.size() == kTableHeaderBytes ? 0 : 4096 - kTableHeaderBytes, '\0');
  if ((mode & 2) == 0) {
    bytes.replace(0, 8, "RECEMB\r\n");
    processor::Put<uint32_t>(&bytes, 8, 1 + (mode >> 2 & 1));
    processor::Put<uint32_t>(&bytes, 12, 256);
    processor::Put<uint64_t>(&bytes, 16, bytes.size());
  }
  if ((mode & 1) == 0) processor::RepairChecksums(&bytes);
  return bytes;
}

// What the index holds, read without searching.
std::set<std::pair<uint64_t, uint32_t>> EntriesOf(const std::string& bytes, const TableHeader& header) {
  std::set<std::pair<uint64_t, uint32_t>> entries;
  for (uint64_t at = header.index.offset; at < header.index.offset + header.index.size; at += 64) {
    for (uint32_t i = 0; i < processor::Get<uint32_t>(bytes, at + 60); ++i) {
      entries.emplace(processor::Get<uint64_t>(bytes, at + 8 * i), processor::Get<uint32_t>(bytes, at + 40 + 4 * i));
    }
  }
  return entries;
}

void CheckIntegers(const EmbeddingTable& table, const std::set<std::pair<uint64_t, uint32_t>>& entries,
                   std::vector<int64_t> keys) {
  for (const auto& [key, row] : entries) keys.push_back(static_cast<int64_t>(key));
  std::vector<uint32_t> rows(keys.size());
  table.FindRows(keys, rows.data());
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto key = static_cast<uint64_t>(keys[i]);
    const bool direct = table.index_kind() == IndexKind::kDirect;
    const auto first = entries.lower_bound({key, 0});
    const bool held = direct ? key < table.rows() : first != entries.end() && first->first == key;
    if (held) {
      Require(direct ? rows[i] == key : entries.count({key, rows[i]}) == 1, "a key does not lead to its row");
    } else {
      Require(rows[i] >= table.rows(), "a key that is not there has a row");
    }
  }
}

void CheckStrings(const EmbeddingTable& table, const TableHeader& header, const std::string& bytes,
                  const std::set<std::pair<uint64_t, uint32_t>>& entries) {
  std::vector<tstring> keys = {"", "aa", "zzz"};
  for (uint64_t row = 0; row < table.rows(); ++row) {
    const auto begin = processor::Get<uint64_t>(bytes, header.key_offsets.offset + 8 * row);
    const auto end = processor::Get<uint64_t>(bytes, header.key_offsets.offset + 8 * row + 8);
    keys.emplace_back(bytes.data() + header.key_bytes.offset + begin, end - begin);
  }
  std::vector<uint32_t> rows(keys.size());
  table.FindRows(keys, rows.data());
  for (size_t i = 0; i < keys.size(); ++i) {
    const uint64_t fingerprint = util::Fingerprint64(keys[i].data(), keys[i].size());
    const bool held = i >= 3 && entries.count({fingerprint, static_cast<uint32_t>(i - 3)}) == 1;
    if (held) Require(rows[i] < table.rows() && keys[rows[i] + 3] == keys[i], "a string does not lead to its row");
    if (rows[i] < table.rows()) Require(entries.count({fingerprint, rows[i]}) == 1, "a row that the index has not");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string bytes = FileOf(data, size);
  const MemoryFile file(bytes);
  std::shared_ptr<const EmbeddingTable> table;
  if (const absl::Status status = EmbeddingTable::Open(file.path(), &table); !status.ok()) {
    Require(status.message().find(file.path()) != std::string::npos, "an error that does not name the file");
    return 0;
  }
  TableHeader header;
  Require(processor::ParseTableHeader(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), &header).ok(),
          "a header that was good once");
  const std::set<std::pair<uint64_t, uint32_t>> entries = EntriesOf(bytes, header);
  if (table->index_kind() == IndexKind::kString) {
    CheckStrings(*table, header, bytes, entries);
  } else {
    CheckIntegers(*table, entries, {0, 1, -1, INT64_MIN, INT64_MAX, 39, 40, int64_t{1} << 32});
  }
  // All rows are in the file: compared with the bytes that it was made of.
  for (uint64_t row = 0; row < table->rows() + table->default_rows(); ++row) {
    const size_t at = header.row_data.offset + row * header.row_stride;
    Require(std::memcmp(table->row(static_cast<uint32_t>(row)), bytes.data() + at, header.row_stride) == 0,
            "a row of other bytes");
  }
  return 0;
}
