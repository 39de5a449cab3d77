// SPDX-License-Identifier: Apache-2.0
// The header of a table's file (docs/table_format.md): its first 256 bytes, parsed and checked. Plain data.
#ifndef PROCESSOR_TABLES_TABLE_HEADER_H_
#define PROCESSOR_TABLES_TABLE_HEADER_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

namespace processor {

enum class RowType : uint32_t { kFloat32 = 0, kBfloat16 = 1, kFloat16 = 2, kInt8 = 3, kInt4 = 4 };
enum class IndexKind : uint32_t { kDirect = 0, kInt64 = 1, kString = 2 };
enum class AbsentKey : uint32_t { kZeros = 0, kError = 1, kDefaultRows = 2 };

constexpr size_t kTableHeaderBytes = 256;
/// The newest version that can be read; version 1 can be, too.
constexpr uint32_t kTableVersion = 2;
constexpr size_t kTableBlockBytes = 65536;

/// Where a section of the file is, and the CRC-32C of its bytes, which only `checksums` has in version 2.
struct TableSection {
  uint64_t offset = 0;
  uint64_t size = 0;
  uint32_t crc = 0;
};

/// Rows from number `first` on have only `dim` elements; the others of their vectors are zeros.
struct NarrowRows {
  uint32_t first = 0;
  uint32_t dim = 0;
};
constexpr size_t kMostNarrowWidths = 4;
/// The incompatible feature of files that have such rows.
constexpr uint64_t kNarrowRowsFeature = 1;

struct TableHeader {
  uint32_t version = 0;
  uint64_t file_size = 0;
  uint64_t rows = 0;
  uint64_t default_rows = 0;
  uint32_t dim = 0;
  RowType row_type = RowType::kFloat32;
  uint32_t row_stride = 0;
  IndexKind index_kind = IndexKind::kDirect;
  AbsentKey absent_key = AbsentKey::kZeros;
  uint64_t home_buckets = 0;
  uint64_t buckets = 0;
  TableSection row_data;
  TableSection index;
  TableSection key_offsets;
  TableSection key_bytes;
  uint32_t num_narrow = 0;  // widths below `dim`, in `narrow`: `first` ascends, and `dim` descends
  std::array<NarrowRows, kMostNarrowWidths> narrow;
  TableSection checksums;  // of the blocks between the header and these; empty in version 1
};

/// Returns the bytes of one row without the padding after it.
uint64_t RowBytes(RowType type, uint32_t dim);

/// Parses the header of a file of `file_size` bytes, and checks that every section is aligned, lies inside the file and
/// overlaps no other. CheckTableContents() checks what is inside the sections.
/// \return DATA_LOSS, or FAILED_PRECONDITION for another version or an unknown feature; the messages do not name the file.
absl::Status ParseTableHeader(const uint8_t* bytes, uint64_t file_size, TableHeader* header);

}  // namespace processor

#endif  // PROCESSOR_TABLES_TABLE_HEADER_H_
