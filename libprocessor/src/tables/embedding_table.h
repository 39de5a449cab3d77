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
#include "src/tables/table_file.h"
#include "src/tables/table_header.h"
#include "src/tables/table_index.h"
#include "tensorflow/core/platform/tstring.h"

namespace processor {

/// Row numbers that no row has: one that reads as zeros, and one of a key that the table does not hold and refuses.
constexpr uint32_t kZeroRow = 0xffffffffu;
constexpr uint32_t kRefusedRow = 0xfffffffeu;

class EmbeddingTable {
 public:
  /// Maps a file, or answers the table that maps it already: each file is mapped once per process, and so are files that
  /// are named by the same hash and are equal. Reads all of a file that is new to the process, which takes seconds for
  /// gigabytes, and leaves it in memory.
  /// \return NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT for what is no file, DATA_LOSS for a damaged file,
  /// FAILED_PRECONDITION for a newer version, UNAVAILABLE or RESOURCE_EXHAUSTED; all name the file.
  static absl::Status Open(const std::string& path, std::shared_ptr<const EmbeddingTable>* table);

  EmbeddingTable(const EmbeddingTable&) = delete;
  EmbeddingTable& operator=(const EmbeddingTable&) = delete;

  const std::string& path() const { return path_; }
  uint64_t rows() const { return header_.rows; }
  uint64_t default_rows() const { return header_.default_rows; }
  uint32_t dim() const { return header_.dim; }
  RowType row_type() const { return header_.row_type; }
  uint32_t row_stride() const { return header_.row_stride; }
  IndexKind index_kind() const { return header_.index_kind; }
  AbsentKey absent_key() const { return header_.absent_key; }

  /// The bytes of a row, not of kZeroRow or kRefusedRow.
  const uint8_t* row(uint32_t number) const { return row_data_ + uint64_t{number} * header_.row_stride; }

  /// Finds the rows of keys; those of a table that is indexed by strings are strings, those of all others are not, and
  /// keys of the other kind are refused. A key that is not there has a default row, kZeroRow or kRefusedRow, as the table
  /// says. Memory is fetched for several keys at a time.
  void FindRows(absl::Span<const int64_t> keys, uint32_t* rows) const;
  void FindRows(absl::Span<const tensorflow::tstring> keys, uint32_t* rows) const;

  /// Fetches what FindRows will read first for these keys: for callers with few keys each for many tables.
  void FetchIndex(absl::Span<const int64_t> keys) const;
  void FetchIndex(absl::Span<const tensorflow::tstring> keys) const;

 private:
  EmbeddingTable() = default;

  static absl::Status Load(const TableFile& file, std::shared_ptr<const EmbeddingTable>* table);

  /// Puts what absent keys read in the place of kNotFound; `default_row` tells it for a key's number.
  template <typename DefaultRow>
  void FillAbsent(size_t num_keys, uint32_t* rows, DefaultRow&& default_row) const;

  std::string path_;
  TableHeader header_;
  TableMapping mapping_;
  TableIndex index_;
  const uint8_t* row_data_ = nullptr;
};

}  // namespace processor

#endif  // PROCESSOR_TABLES_EMBEDDING_TABLE_H_
