// SPDX-License-Identifier: Apache-2.0
// The rows of a table and those laid over them in one range of addresses, so that a row number is all that a kernel needs.
#ifndef PROCESSOR_LIVE_OVERLAY_MEMORY_H_
#define PROCESSOR_LIVE_OVERLAY_MEMORY_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "src/tables/embedding_table.h"

namespace processor {

/// A reference to a version of a row: the epoch from which on it counts, whether the key is deleted, and the row.
using VersionRef = uint64_t;

/// Owns the addresses. The pages of the file are mapped once more at the front; they are shared, not copied. The overlay's
/// rows lie behind, at the same stride, and each has a place for the version that it replaced. Any thread may read rows
/// that it was given; one thread at a time commits and writes.
class OverlayMemory {
 public:
  /// Reserves addresses for the rows of `table`, which must outlive this object, and for as many overlay rows as the process
  /// can have, up to 2^31 or four times the rows of the table.
  /// \return RESOURCE_EXHAUSTED that names the table.
  static absl::Status Create(const EmbeddingTable& table, std::unique_ptr<OverlayMemory>* memory);
  ~OverlayMemory();
  OverlayMemory(const OverlayMemory&) = delete;
  OverlayMemory& operator=(const OverlayMemory&) = delete;

  /// Returns the address of row 0.
  const uint8_t* rows() const { return rows_; }
  /// Returns the number of the first overlay row, which is above all numbers of the table.
  uint32_t first_row() const { return first_row_; }
  uint32_t capacity() const { return capacity_; }
  /// Returns the bytes that are committed.
  size_t bytes() const { return committed_row_bytes_ + committed_link_bytes_; }

  uint8_t* row(uint32_t number) { return rows_ + size_t{number} * stride_; }
  std::atomic<VersionRef>& replaced(uint32_t number) const { return links_[number - first_row_]; }

  /// Makes the first `count` overlay rows writable. \return RESOURCE_EXHAUSTED beyond the capacity, or without memory.
  absl::Status Commit(uint32_t count);

 private:
  explicit OverlayMemory(const EmbeddingTable& table) : table_(table), stride_(table.row_stride()) {}

  absl::Status Reserve();
  absl::Status MapTable();

  const EmbeddingTable& table_;
  const uint32_t stride_;
  uint8_t* reserved_ = nullptr;
  size_t reserved_bytes_ = 0;
  uint8_t* rows_ = nullptr;
  std::atomic<VersionRef>* links_ = nullptr;
  size_t link_bytes_ = 0;
  uint32_t first_row_ = 0;
  uint32_t capacity_ = 0;
  size_t committed_row_bytes_ = 0;  // from the first page of overlay rows on
  size_t committed_link_bytes_ = 0;
};

}  // namespace processor

#endif  // PROCESSOR_LIVE_OVERLAY_MEMORY_H_
