// SPDX-License-Identifier: Apache-2.0
// The rows of a table larger than memory: those that are read most often in a cache, all others in the file.
#ifndef PROCESSOR_TABLES_TIERED_ROWS_H_
#define PROCESSOR_TABLES_TIERED_ROWS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "src/tables/direct_file.h"
#include "src/tables/row_caches.h"
#include "src/tables/row_runs.h"
#include "src/tables/table_header.h"

namespace processor {

/// The file, its caches and what is known of its blocks. Any thread may read, with a TieredFetch.
class TieredRows {
 public:
  struct Stats {
    uint64_t cache_bytes = 0;
    uint64_t cache_rows = 0, cached_rows = 0;  // places of the caches, and those that are used
    uint64_t lookups = 0, hits = 0;            // rows that requests asked for, and those that were in a cache
    uint64_t early_rows = 0;                   // those that were read before the request ran
    uint64_t reads = 0, read_bytes = 0;        // of the file
    uint64_t blocks = 0, checked_blocks = 0;   // with rows
    uint64_t bad_blocks = 0;                   // that were found to be damaged, each time that they were read

    /// Whether rows are still read by whole blocks, because these have not been checked.
    bool warming() const { return checked_blocks < blocks; }
    void Add(const Stats& other);
  };

  /// \param checksums    of the blocks of the file
  /// \param cache_bytes  memory of the caches
  /// \return RESOURCE_EXHAUSTED without memory for the caches.
  static absl::Status Open(const TableFile& file, std::unique_ptr<const DirectFile> direct, const TableHeader& header,
                           std::unique_ptr<const uint32_t[]> checksums, uint64_t cache_bytes,
                           std::unique_ptr<TieredRows>* rows);

  /// Returns the rows of the file, default rows included.
  uint64_t num_rows() const { return num_rows_; }
  bool is_direct() const { return file_->is_direct(); }
  Stats stats() const;

 private:
  friend class EarlyRows;
  friend class TieredFetch;
  friend class TieredPieces;

  TieredRows() = default;

  // Where a row or a block begins in the file, the bytes of a row, and the block of a byte.
  uint64_t OffsetOf(uint32_t row) const {
    const RowRun& run = runs_.Of(row);
    return row_offset_ + run.offset + uint64_t{row - run.first} * run.stride;
  }
  uint32_t BytesOf(uint32_t row) const { return runs_.Of(row).bytes; }
  uint64_t BlockOf(uint64_t offset) const { return (offset - kTableHeaderBytes) / kTableBlockBytes; }
  uint64_t BeginOf(uint64_t block) const { return kTableHeaderBytes + block * kTableBlockBytes; }
  uint64_t EndOf(uint64_t block) const;

  bool IsChecked(uint64_t block) const {
    return (checked_[block / 64].load(std::memory_order_acquire) >> block % 64 & 1) != 0;
  }
  void SetChecked(uint64_t block);
  absl::Status BadBlock(uint64_t block) const;
  absl::Status Named(absl::Status status) const;

  std::string path_;
  std::unique_ptr<const DirectFile> file_;
  uint64_t row_offset_ = 0, num_rows_ = 0;
  RowRuns runs_;
  uint64_t blocks_end_ = 0;                    // where the checksums begin
  uint64_t num_blocks_ = 0;                    // of the file
  uint64_t first_block_ = 0, last_block_ = 0;  // with rows
  std::unique_ptr<const uint32_t[]> checksums_;
  std::unique_ptr<std::atomic<uint64_t>[]> checked_;  // a bit for each block
  std::unique_ptr<RowCaches> caches_;
  std::atomic<uint64_t> lookups_{0}, misses_{0}, early_rows_{0}, reads_{0}, read_bytes_{0}, checked_blocks_{0},
      bad_blocks_{0};
};

}  // namespace processor

#endif  // PROCESSOR_TABLES_TIERED_ROWS_H_
