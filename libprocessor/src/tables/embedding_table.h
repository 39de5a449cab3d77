// SPDX-License-Identifier: Apache-2.0
// An immutable embedding table in a file, which is mapped, copied to memory (resident), or larger than memory (tiered);
// docs/table_format.md describes the format.
#ifndef PROCESSOR_TABLES_EMBEDDING_TABLE_H_
#define PROCESSOR_TABLES_EMBEDDING_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "src/tables/resident_table.h"
#include "src/tables/row_runs.h"
#include "src/tables/table_check.h"
#include "src/tables/table_file.h"
#include "src/tables/table_header.h"
#include "src/tables/table_index.h"
#include "src/tables/tiered_rows.h"
#include "tensorflow/core/platform/tstring.h"

namespace processor {

/// Row numbers that no row has: for a key that reads as zeros, and for a key that the table refuses.
constexpr uint32_t kZeroRow = 0xffffffffu;
constexpr uint32_t kRefusedRow = 0xfffffffeu;

/// Where the rows of a table are. If it is neither tiered nor resident, its file is mapped.
struct TableStorage {
  bool tiered = false;       // the index in memory, rows in a cache and in the file
  double cache_share = 0;    // the memory of the cache over the bytes of all rows, if it is tiered
  bool resident = false;     // all of it in memory that processes share
  std::string share_folder;  // where they find it, if it is resident: as ResidentFolder::Open()
};

/// Owns the mapping of one file, a share of the memory of a resident one, or what is in memory of a tiered one. The ops that use a table share it; any thread may read.
class EmbeddingTable {
 public:
  /// Maps a file, or returns the table that maps it already. Each file is mapped once per process, and so are equal files
  /// whose names have the same hash. A file that is new to the process is read completely, which takes seconds for
  /// gigabytes, and stays in memory.
  /// Of a tiered table only the index is read; it is shared with those that have as large a cache. A resident table is not
  /// read if its memory is there already.
  /// \return NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT if it is not a file, DATA_LOSS for a damaged file,
  /// FAILED_PRECONDITION for a newer version, or for one that cannot be tiered, UNAVAILABLE or RESOURCE_EXHAUSTED; all name
  /// the file.
  static absl::Status Open(const std::string& path, std::shared_ptr<const EmbeddingTable>* table) {
    return Open(path, TableStorage{}, table);
  }
  static absl::Status Open(const std::string& path, const TableStorage& storage,
                           std::shared_ptr<const EmbeddingTable>* table);

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

  /// Returns the rows of a tiered table, or null. They are read with a TieredFetch.
  TieredRows* tiered() const { return tiered_.get(); }
  /// Returns the memory of a resident table, or null.
  const ResidentTable* resident() const { return resident_.get(); }
  /// Returns the memory of the index, and of strings, of a tiered table; 0 of others.
  size_t index_bytes() const { return parts_.bytes(); }

  /// Whether kernels read copies of the rows: a tiered table's are not in memory, and others may have different widths.
  bool copies_rows() const { return tiered_ != nullptr || has_narrow_rows(); }
  bool has_narrow_rows() const { return header_.num_narrow > 0; }
  /// Returns the runs of rows of one width, whose offsets count from the first row of the file.
  const RowRuns& runs() const { return runs_; }

  /// Returns the bytes of a row, which is neither kZeroRow nor kRefusedRow. Not for tiered tables, and of those with rows of
  /// different widths only for row 0.
  const uint8_t* row(uint32_t number) const { return row_data_ + uint64_t{number} * header_.row_stride; }

  /// Finds the rows of keys. If the table is indexed by strings, keys must be strings, otherwise integers; keys of the
  /// other kind get kRefusedRow. An absent key gets a default row, kZeroRow or kRefusedRow, as the table says. Memory is
  /// prefetched for several keys at a time.
  void FindRows(absl::Span<const int64_t> keys, uint32_t* rows) const;
  void FindRows(absl::Span<const tensorflow::tstring> keys, uint32_t* rows) const;

  /// Finds the rows of keys of the index's kind; an absent key, or one of the other kind, gets kZeroRow.
  /// \return the number of keys that got kZeroRow.
  size_t FindKeys(absl::Span<const int64_t> keys, uint32_t* rows) const;
  size_t FindKeys(absl::Span<const tensorflow::tstring> keys, uint32_t* rows) const;

  /// Returns the row that an absent key reads: a default row, kZeroRow or kRefusedRow.
  uint32_t AbsentRow(int64_t key) const;
  uint32_t AbsentRow(const tensorflow::tstring& key) const;

  const TableIndex& index() const { return index_; }

  /// Maps the rows once more at an address that begins with a page. `bytes`: a number of whole pages of the rows; of a resident
  /// table, pages of its memory. Not of tiered tables. \return false if the kernel refuses.
  bool MapRowsAt(uint8_t* address, size_t bytes) const;

  /// Unmaps pages of the rows of a mapped table, whose address is row(0) plus `begin`, until somebody reads them again; the
  /// memory of a resident one stays. Any thread.
  void DropPages(size_t begin, size_t bytes) const;

  /// Unmaps the pages of the index, and of strings, in the same way; those of others stay.
  void DropIndexPages() const;

  /// Prefetches what FindRows() will read first for these keys, for callers with few keys for each of many tables.
  void FetchIndex(absl::Span<const int64_t> keys) const;
  void FetchIndex(absl::Span<const tensorflow::tstring> keys) const;

 private:
  EmbeddingTable() = default;

  static absl::Status Load(const TableFile& file, const TableStorage& storage,
                           std::shared_ptr<const EmbeddingTable>* table);
  absl::Status MapFile(const TableFile& file);
  absl::Status OpenTiered(const TableFile& file, const TableStorage& storage);
  absl::Status OpenResident(const TableFile& file, const uint8_t* header, const TableStorage& storage);
  void SetIndex(const uint8_t* index, const uint8_t* key_offsets, const uint8_t* key_bytes);

  /// Replaces each kNotFound by the row that absent keys read.
  template <typename Key>
  void FillAbsent(absl::Span<const Key> keys, uint32_t* rows) const;

  std::string path_;
  TableHeader header_;
  TableMapping mapping_;
  TableParts parts_;                    // of a tiered table
  std::unique_ptr<TieredRows> tiered_;  // likewise
  TableIndex index_;
  std::shared_ptr<const ResidentTable> resident_;  // or null
  RowRuns runs_;
  const uint8_t* row_data_ = nullptr;  // not of a tiered table
};

}  // namespace processor

#endif  // PROCESSOR_TABLES_EMBEDDING_TABLE_H_
