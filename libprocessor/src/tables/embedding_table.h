// SPDX-License-Identifier: Apache-2.0
// An immutable embedding table in a memory-mapped file. The format is in docs/table_format.md.
#ifndef PROCESSOR_TABLES_EMBEDDING_TABLE_H_
#define PROCESSOR_TABLES_EMBEDDING_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "tensorflow/core/platform/tstring.h"

namespace processor {

enum class RowType : uint32_t { kFloat32 = 0, kBfloat16 = 1, kFloat16 = 2, kInt8 = 3, kInt4 = 4 };
enum class IndexKind : uint32_t { kDirect = 0, kInt64 = 1, kString = 2 };
enum class AbsentKey : uint32_t { kZeros = 0, kError = 1, kDefaultRows = 2 };

/// Row numbers that no row has: one that reads as zeros, and one of a key that the table does not hold and refuses.
constexpr uint32_t kZeroRow = 0xffffffffu;
constexpr uint32_t kRefusedRow = 0xfffffffeu;

class EmbeddingTable {
 public:
  /// Maps a file, or answers the table that maps it already: each file is mapped once per process.
  /// \return NOT_FOUND, DATA_LOSS for a damaged file, FAILED_PRECONDITION for a newer version; all name the file.
  static absl::Status Open(const std::string& path, std::shared_ptr<const EmbeddingTable>* table);

  ~EmbeddingTable();
  EmbeddingTable(const EmbeddingTable&) = delete;
  EmbeddingTable& operator=(const EmbeddingTable&) = delete;

  const std::string& path() const { return path_; }
  uint64_t rows() const { return rows_; }
  uint64_t default_rows() const { return default_rows_; }
  uint32_t dim() const { return dim_; }
  RowType row_type() const { return row_type_; }
  uint32_t row_stride() const { return row_stride_; }
  IndexKind index_kind() const { return index_kind_; }
  AbsentKey absent_key() const { return absent_key_; }

  /// The bytes of a row, not of kZeroRow or kRefusedRow.
  const uint8_t* row(uint32_t number) const { return row_data_ + uint64_t{number} * row_stride_; }

  /// Finds the rows of keys; keys of a table that is indexed by strings are strings. A key that is not there has a
  /// default row, kZeroRow or kRefusedRow, as the table says. Memory is fetched for several keys at a time.
  void FindRows(absl::Span<const int64_t> keys, uint32_t* rows) const;
  void FindRows(absl::Span<const tensorflow::tstring> keys, uint32_t* rows) const;

 private:
  EmbeddingTable() = default;

  std::string path_;
  uint64_t rows_ = 0;
  uint64_t default_rows_ = 0;
  uint64_t home_buckets_ = 0;
  uint64_t buckets_ = 0;
  uint32_t dim_ = 0;
  RowType row_type_ = RowType::kFloat32;
  uint32_t row_stride_ = 0;
  IndexKind index_kind_ = IndexKind::kDirect;
  AbsentKey absent_key_ = AbsentKey::kZeros;
  const uint8_t* row_data_ = nullptr;
  const uint8_t* index_ = nullptr;
  const uint64_t* key_offsets_ = nullptr;
  const char* key_bytes_ = nullptr;
  void* mapping_ = nullptr;
  size_t mapped_bytes_ = 0;
};

}  // namespace processor

#endif  // PROCESSOR_TABLES_EMBEDDING_TABLE_H_
