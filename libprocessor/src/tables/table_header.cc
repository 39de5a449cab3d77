// SPDX-License-Identifier: Apache-2.0
#include "src/tables/table_header.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "src/tables/row_runs.h"
#include "src/tables/table_crc.h"

namespace processor {
namespace {

constexpr char kMagic[] = "RECEMB\r\n";
constexpr uint64_t kRowLimit = (uint64_t{1} << 32) - 16;
constexpr size_t kSectionsOffset = 80, kSectionBytes = 24, kFeaturesOffset = 176, kCrcOffset = 252;
// Of version 2.
constexpr size_t kChecksumsOffset = 192, kBlockSizeOffset = 216, kReservedOffset = 220;
// With narrow rows, their widths are in the reserved bytes.
constexpr size_t kNarrowBytes = 8;
static_assert(kReservedOffset + kMostNarrowWidths * kNarrowBytes == kCrcOffset);

template <typename T>
T Load(const uint8_t* bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes + offset, sizeof(T));
  return value;
}

template <typename... Parts>
absl::Status Damaged(const Parts&... parts) {
  return absl::DataLossError(absl::StrCat("header: ", parts...));
}

absl::Status CheckFields(const TableHeader& header) {
  if (static_cast<uint32_t>(header.row_type) > 4) {
    return Damaged("row_type ", static_cast<uint32_t>(header.row_type), ", expected 0-4");
  }
  if (static_cast<uint32_t>(header.index_kind) > 2) {
    return Damaged("index_kind ", static_cast<uint32_t>(header.index_kind), ", expected 0-2");
  }
  if (static_cast<uint32_t>(header.absent_key) > 2) {
    return Damaged("absent_key ", static_cast<uint32_t>(header.absent_key), ", expected 0-2");
  }
  // Each alone first, so that the sum cannot wrap.
  if (header.rows >= kRowLimit || header.default_rows >= kRowLimit || header.rows + header.default_rows >= kRowLimit) {
    return Damaged(header.rows, " rows and ", header.default_rows, " default rows, expected less than ", kRowLimit);
  }
  if ((header.default_rows != 0) != (header.absent_key == AbsentKey::kDefaultRows)) {
    return Damaged(header.default_rows, " default rows, expected ",
                   header.default_rows == 0 ? "some: absent keys lead to them" : "0: no key leads to them");
  }
  if (header.dim < 1) return Damaged("dim 0, expected at least 1");
  const uint64_t row_bytes = RowBytes(header.row_type, header.dim);
  const uint32_t alignment = row_bytes >= 4 ? 4 : 2;
  if (header.row_stride < row_bytes || header.row_stride % alignment != 0) {
    return Damaged("row_stride ", header.row_stride, ", expected a multiple of ", alignment, " not below the ",
                   row_bytes, " bytes of a row");
  }
  const bool direct = header.index_kind == IndexKind::kDirect;
  if (direct ? header.buckets != 0 || header.home_buckets != 0
             : header.home_buckets < 1 || header.buckets < header.home_buckets) {
    return Damaged(header.home_buckets, " home buckets of ", header.buckets, ", expected ",
                   direct ? "0 of 0 in a table without index" : "at least 1 and not more than all");
  }
  return absl::OkStatus();
}

absl::Status CheckNarrowRows(const TableHeader& header) {
  uint32_t first = 0, dim = header.dim;
  for (uint32_t i = 0; i < header.num_narrow; ++i) {
    const NarrowRows& narrow = header.narrow[i];
    if (narrow.dim < 1 || narrow.dim >= dim || (i > 0 && narrow.first <= first) || narrow.first >= header.rows) {
      return Damaged("rows of width ", narrow.dim, " from row ", narrow.first, " of ", header.rows,
                     " on, expected ascending rows and widths that descend from ", header.dim);
    }
    first = narrow.first, dim = narrow.dim;
  }
  return absl::OkStatus();
}

struct Expectation {
  const char* name;
  const TableSection* section;
  uint64_t alignment;
  bool fixed_size;  // the other fields say how large it is
  uint64_t size;
};

absl::Status CheckSection(const Expectation& expected, uint64_t file_size) {
  const TableSection& section = *expected.section;
  if (expected.fixed_size && section.size != expected.size) {
    return Damaged(expected.name, ": ", section.size, " bytes, expected ", expected.size);
  }
  if (section.size == 0) {
    if (section.offset != 0 || section.crc != 0) return Damaged(expected.name, ": empty, but has an offset or a CRC");
    return absl::OkStatus();
  }
  if (section.offset % expected.alignment != 0) {
    return Damaged(expected.name, ": offset ", section.offset, ", expected a multiple of ", expected.alignment);
  }
  if (section.offset < kTableHeaderBytes || section.offset > file_size || section.size > file_size - section.offset) {
    return Damaged(expected.name, ": ", section.size, " bytes from ", section.offset,
                   ", expected between the header and the end of ", file_size, " bytes");
  }
  return absl::OkStatus();
}

// There is a checksum for each block up to the first checksum, and nothing behind the last one. `end` is that of the other
// sections, which lie inside the file.
absl::Status CheckChecksums(const TableHeader& header, uint64_t end) {
  const TableSection& found = header.checksums;
  const uint64_t offset = (end + 63) / 64 * 64;
  const uint64_t blocks = (offset - kTableHeaderBytes + kTableBlockBytes - 1) / kTableBlockBytes;
  const uint64_t expected_offset = blocks == 0 ? 0 : offset, size = 4 * blocks;
  if (found.offset != expected_offset || found.size != size || (blocks == 0 && found.crc != 0)) {
    return Damaged("checksums: ", found.size, " bytes from ", found.offset, ", expected ", size, " from ",
                   expected_offset);
  }
  if (const uint64_t expected = blocks == 0 ? kTableHeaderBytes : offset + size; header.file_size != expected) {
    return absl::DataLossError(absl::StrCat(header.file_size, " bytes, expected ", expected));
  }
  return absl::OkStatus();
}

absl::Status CheckSections(const TableHeader& header) {
  const bool strings = header.index_kind == IndexKind::kString;
  // The number of buckets may be anything up to here: it is compared with a count that cannot wrap.
  if (header.buckets >= uint64_t{1} << 32 || header.buckets > header.file_size / 64) {
    return Damaged(header.buckets, " buckets of 64 bytes, expected what fits into ", header.file_size, " bytes");
  }
  const std::array<Expectation, 4> expectations = {{
      {"row_data", &header.row_data, 4096, true, RowRuns(header).bytes()},
      {"index", &header.index, 64, true, 64 * header.buckets},
      {"key_offsets", &header.key_offsets, 8, true, strings ? 8 * (header.rows + 1) : 0},
      {"key_bytes", &header.key_bytes, 1, !strings, 0},
  }};
  for (const Expectation& expected : expectations) {
    if (absl::Status s = CheckSection(expected, header.file_size); !s.ok()) return s;
  }
  std::array<Expectation, 4> ordered = expectations;
  std::sort(ordered.begin(), ordered.end(),
            [](const Expectation& a, const Expectation& b) { return a.section->offset < b.section->offset; });
  uint64_t end = kTableHeaderBytes;
  for (const Expectation& expected : ordered) {
    if (expected.section->size == 0) continue;
    if (expected.section->offset < end) return Damaged(expected.name, ": overlaps the section before it");
    end = expected.section->offset + expected.section->size;
  }
  return header.version == 1 ? absl::OkStatus() : CheckChecksums(header, end);
}

// Reads what version 2 has more: features, of which the compatible ones are ignored, and checksums.
absl::Status ReadFeatures(const uint8_t* bytes, TableHeader* header) {
  const auto features = Load<uint64_t>(bytes, kFeaturesOffset);
  if ((features & ~kNarrowRowsFeature) != 0) {
    return absl::FailedPreconditionError(absl::StrCat("incompatible features 0x", absl::Hex(features),
                                                      ", expected none that this version does not know"));
  }
  if ((features & kNarrowRowsFeature) != 0) {
    size_t at = kReservedOffset;
    for (NarrowRows& narrow : header->narrow) {
      narrow = {Load<uint32_t>(bytes, at), Load<uint32_t>(bytes, at + 4)};
      if (narrow.dim == 0) break;
      ++header->num_narrow;
      at += kNarrowBytes;
    }
    if (header->num_narrow == 0) return Damaged("no widths of narrow rows, expected some");
  }
  if (const auto size = Load<uint32_t>(bytes, kBlockSizeOffset); size != kTableBlockBytes) {
    return Damaged("block_size ", size, ", expected ", kTableBlockBytes);
  }
  header->checksums = {Load<uint64_t>(bytes, kChecksumsOffset), Load<uint64_t>(bytes, kChecksumsOffset + 8),
                       Load<uint32_t>(bytes, kChecksumsOffset + 16)};
  return absl::OkStatus();
}

}  // namespace

uint64_t RowBytes(RowType type, uint32_t dim) {
  switch (type) {
    case RowType::kFloat32:
      return uint64_t{4} * dim;
    case RowType::kBfloat16:
    case RowType::kFloat16:
      return uint64_t{2} * dim;
    case RowType::kInt8:
      return 4 + uint64_t{dim};
    case RowType::kInt4:
      return 4 + (uint64_t{dim} + 1) / 2;
  }
  return 0;
}

absl::Status ParseTableHeader(const uint8_t* bytes, uint64_t file_size, TableHeader* header) {
  if (file_size < kTableHeaderBytes) {
    return absl::DataLossError(absl::StrCat(file_size, " bytes, expected a header of ", kTableHeaderBytes));
  }
  if (std::memcmp(bytes, kMagic, 8) != 0) return Damaged("no table's magic number");
  // Before the checksum: what that covers may differ in another version.
  const uint32_t version = Load<uint32_t>(bytes, 8);
  if (version < 1 || version > kTableVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("version ", version, " of the format, expected at most ", kTableVersion));
  }
  if (ExtendTableCrc(0, bytes, kCrcOffset) != Load<uint32_t>(bytes, kCrcOffset)) return Damaged("wrong checksum");
  if (const uint32_t size = Load<uint32_t>(bytes, 12); size != kTableHeaderBytes) {
    return Damaged("header_size ", size, ", expected ", kTableHeaderBytes);
  }
  TableHeader found;
  found.version = version;
  found.file_size = Load<uint64_t>(bytes, 16);
  found.rows = Load<uint64_t>(bytes, 24);
  found.default_rows = Load<uint64_t>(bytes, 32);
  found.dim = Load<uint32_t>(bytes, 40);
  found.row_type = static_cast<RowType>(Load<uint32_t>(bytes, 44));
  found.row_stride = Load<uint32_t>(bytes, 48);
  found.index_kind = static_cast<IndexKind>(Load<uint32_t>(bytes, 52));
  found.absent_key = static_cast<AbsentKey>(Load<uint32_t>(bytes, 56));
  found.home_buckets = Load<uint64_t>(bytes, 64);
  found.buckets = Load<uint64_t>(bytes, 72);
  bool reserved_is_zero = Load<uint32_t>(bytes, 60) == 0;
  size_t at = kSectionsOffset;
  for (TableSection* section : {&found.row_data, &found.index, &found.key_offsets, &found.key_bytes}) {
    *section = {Load<uint64_t>(bytes, at), Load<uint64_t>(bytes, at + 8), Load<uint32_t>(bytes, at + 16)};
    reserved_is_zero &= Load<uint32_t>(bytes, at + 20) == 0 && (version == 1 || section->crc == 0);
    at += kSectionBytes;
  }
  size_t reserved = kFeaturesOffset;
  if (version > 1) {
    if (absl::Status s = ReadFeatures(bytes, &found); !s.ok()) return s;
    reserved_is_zero &= Load<uint32_t>(bytes, kChecksumsOffset + 20) == 0;
    reserved = kReservedOffset + found.num_narrow * kNarrowBytes;
  }
  reserved_is_zero &= std::all_of(bytes + reserved, bytes + kCrcOffset, [](uint8_t byte) { return byte == 0; });
  if (!reserved_is_zero) return Damaged("reserved bytes that are not zero");
  if (found.file_size != file_size) {
    return absl::DataLossError(absl::StrCat(file_size, " bytes, expected ", found.file_size));
  }
  if (absl::Status s = CheckFields(found); !s.ok()) return s;
  if (absl::Status s = CheckNarrowRows(found); !s.ok()) return s;
  if (absl::Status s = CheckSections(found); !s.ok()) return s;
  *header = found;
  return absl::OkStatus();
}

}  // namespace processor
