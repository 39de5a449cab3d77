// SPDX-License-Identifier: Apache-2.0
// Writes files of docs/table_format.md, with code that shares nothing with the reader but the names of its enums.
#ifndef PROCESSOR_TESTS_TABLES_TABLE_FILE_H_
#define PROCESSOR_TESTS_TABLES_TABLE_FILE_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "external/farmhash_archive/src/farmhash.h"
#include "src/tables/table_header.h"

namespace processor {

inline uint32_t Crc32c(const char* bytes, size_t size) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> made{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t crc = i;
      for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0);
      made[i] = crc;
    }
    return made;
  }();
  uint32_t crc = 0xffffffffu;
  for (size_t i = 0; i < size; ++i) crc = table[(crc ^ static_cast<uint8_t>(bytes[i])) & 0xff] ^ (crc >> 8);
  return crc ^ 0xffffffffu;
}

template <typename T>
void Put(std::string* bytes, size_t offset, T value) {
  std::memcpy(bytes->data() + offset, &value, sizeof(T));
}

template <typename T>
T Get(const std::string& bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

/// Where the header has its sections: row_data, index, key_offsets, key_bytes.
constexpr size_t kSectionFields[] = {80, 104, 128, 152};

/// Where the header of version 2 has the section of checksums, and whether a file is of this version.
constexpr size_t kChecksumsField = 192;
inline bool HasBlockChecksums(const std::string& bytes) { return Get<uint32_t>(bytes, 8) == 2; }

/// Makes the checksums of the blocks right again, if they lie in the file.
inline void RepairBlocks(std::string* bytes) {
  const uint64_t offset = Get<uint64_t>(*bytes, kChecksumsField), size = Get<uint64_t>(*bytes, kChecksumsField + 8);
  if (offset > bytes->size() || size > bytes->size() - offset) return;
  uint64_t at = kTableHeaderBytes;
  for (uint64_t place = offset; place + 4 <= offset + size && at < offset; place += 4, at += 65536) {
    Put<uint32_t>(bytes, place, Crc32c(bytes->data() + at, std::min<uint64_t>(65536, offset - at)));
  }
  Put<uint32_t>(bytes, kChecksumsField + 16, Crc32c(bytes->data() + offset, size));
}

/// Makes all checksums right again, of sections that lie in the file.
inline void RepairChecksums(std::string* bytes) {
  if (bytes->size() < kTableHeaderBytes) return;
  if (HasBlockChecksums(*bytes)) RepairBlocks(bytes);
  for (size_t field : kSectionFields) {
    const uint64_t offset = Get<uint64_t>(*bytes, field), size = Get<uint64_t>(*bytes, field + 8);
    if (HasBlockChecksums(*bytes) || offset > bytes->size() || size > bytes->size() - offset) continue;
    Put<uint32_t>(bytes, field + 16, Crc32c(bytes->data() + offset, size));
  }
  Put<uint32_t>(bytes, 252, Crc32c(bytes->data(), 252));
}

inline uint64_t HomeOf(uint64_t key, uint64_t home_buckets) {
  key ^= key >> 33;
  key *= 0xff51afd7ed558ccdull;
  key ^= key >> 33;
  key *= 0xc4ceb9fe1a85ec53ull;
  key ^= key >> 33;
  return static_cast<uint64_t>((static_cast<unsigned __int128>(key) * home_buckets) >> 64);
}

/// What a file is made of. Key i leads to row i.
struct TableFileContent {
  uint32_t version = 2;
  RowType row_type = RowType::kFloat32;
  IndexKind index_kind = IndexKind::kDirect;
  AbsentKey absent_key = AbsentKey::kZeros;
  uint32_t dim = 4;
  uint32_t row_stride = 0;  // 0: the smallest
  uint64_t rows = 0;        // of a direct table; others have one for each key
  uint64_t default_rows = 0;
  std::vector<int64_t> keys;
  std::vector<std::string> texts;
  std::vector<uint64_t> fingerprints;  // of texts; those that are missing are computed
  uint64_t home_buckets = 0;           // 0: so many that three of five places are taken
  std::string row_data;                // (rows + default_rows) strides; empty: byte i is i % 251

  uint64_t NumRows() const {
    if (index_kind == IndexKind::kDirect) return rows;
    return index_kind == IndexKind::kInt64 ? keys.size() : texts.size();
  }
  uint32_t Stride() const {
    if (row_stride != 0) return row_stride;
    uint32_t bytes = 4 * dim;
    if (row_type == RowType::kBfloat16 || row_type == RowType::kFloat16) bytes = 2 * dim;
    if (row_type == RowType::kInt8) bytes = 4 + dim;
    if (row_type == RowType::kInt4) bytes = 4 + (dim + 1) / 2;
    return bytes < 4 ? 2 : (bytes + 3) / 4 * 4;
  }
  std::string Bytes() const;

 private:
  std::string IndexBytes(uint64_t homes) const;
};

inline std::string TableFileContent::IndexBytes(uint64_t homes) const {
  struct Entry {
    uint64_t home, key;
    uint32_t row;
  };
  std::vector<Entry> entries;
  for (uint32_t row = 0; row < NumRows(); ++row) {
    uint64_t key;
    if (index_kind == IndexKind::kInt64) {
      key = static_cast<uint64_t>(keys[row]);
    } else {
      key = row < fingerprints.size() ? fingerprints[row] : util::Fingerprint64(texts[row].data(), texts[row].size());
    }
    entries.push_back({HomeOf(key, homes), key, row});
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.home < b.home; });
  std::string index(64 * homes, '\0');
  uint64_t bucket = 0;
  for (const Entry& entry : entries) {
    bucket = std::max(bucket, entry.home);
    if (Get<uint32_t>(index, 64 * bucket + 60) == 5) ++bucket;
    if (64 * bucket == index.size()) index.resize(index.size() + 64);
    const uint32_t count = Get<uint32_t>(index, 64 * bucket + 60);
    Put(&index, 64 * bucket + 8 * count, entry.key);
    Put(&index, 64 * bucket + 40 + 4 * count, entry.row);
    Put(&index, 64 * bucket + 60, count + 1);
  }
  if (Get<uint32_t>(index, index.size() - 4) == 5) index.resize(index.size() + 64);
  return index;
}

inline std::string TableFileContent::Bytes() const {
  const bool direct = index_kind == IndexKind::kDirect, strings = index_kind == IndexKind::kString;
  const uint64_t homes = direct ? 0 : home_buckets != 0 ? home_buckets : NumRows() / 3 + 1;
  std::string sections[4];
  sections[0] = row_data;
  if (row_data.empty()) {
    for (uint64_t i = 0; i < (NumRows() + default_rows) * Stride(); ++i) sections[0] += static_cast<char>(i % 251);
  }
  if (!direct) sections[1] = IndexBytes(homes);
  if (strings) {
    sections[2].resize(8 * (texts.size() + 1));
    for (size_t row = 0; row < texts.size(); ++row) {
      sections[3] += texts[row];
      Put<uint64_t>(&sections[2], 8 * (row + 1), sections[3].size());
    }
  }
  std::string bytes(kTableHeaderBytes, '\0');
  std::memcpy(bytes.data(), "RECEMB\r\n", 8);
  for (int i = 0; i < 4; ++i) {
    if (sections[i].empty()) continue;
    const uint64_t alignment = i == 0 ? 4096 : 64;
    bytes.resize((bytes.size() + alignment - 1) / alignment * alignment);
    Put<uint64_t>(&bytes, kSectionFields[i], bytes.size());
    Put<uint64_t>(&bytes, kSectionFields[i] + 8, sections[i].size());
    bytes += sections[i];
  }
  Put<uint32_t>(&bytes, 8, version);
  Put<uint32_t>(&bytes, 12, 256);
  if (version == 2) {
    Put<uint32_t>(&bytes, 216, 65536);
    if (bytes.size() > kTableHeaderBytes) {
      bytes.resize((bytes.size() + 63) / 64 * 64);
      Put<uint64_t>(&bytes, kChecksumsField, bytes.size());
      const size_t size = 4 * ((bytes.size() - kTableHeaderBytes + 65535) / 65536);
      Put<uint64_t>(&bytes, kChecksumsField + 8, size);
      bytes.resize(bytes.size() + size);
    }
  }
  Put<uint64_t>(&bytes, 16, bytes.size());
  Put<uint64_t>(&bytes, 24, NumRows());
  Put<uint64_t>(&bytes, 32, default_rows);
  Put<uint32_t>(&bytes, 40, dim);
  Put<uint32_t>(&bytes, 44, static_cast<uint32_t>(row_type));
  Put<uint32_t>(&bytes, 48, Stride());
  Put<uint32_t>(&bytes, 52, static_cast<uint32_t>(index_kind));
  Put<uint32_t>(&bytes, 56, static_cast<uint32_t>(absent_key));
  Put<uint64_t>(&bytes, 64, homes);
  Put<uint64_t>(&bytes, 72, sections[1].size() / 64);
  RepairChecksums(&bytes);
  return bytes;
}

}  // namespace processor

#endif  // PROCESSOR_TESTS_TABLES_TABLE_FILE_H_
