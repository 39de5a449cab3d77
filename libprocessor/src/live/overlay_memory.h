// SPDX-License-Identifier: Apache-2.0
// The rows of a table and those laid over them in one range of addresses, so that a row number is all that a kernel needs.
#ifndef PROCESSOR_LIVE_OVERLAY_MEMORY_H_
#define PROCESSOR_LIVE_OVERLAY_MEMORY_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "src/live/changed_rows.h"
#include "src/live/committed_memory.h"
#include "src/tables/embedding_table.h"

namespace processor {

/// Owns the addresses. The pages of the file are mapped once more at the front, and shared; blocks of them can be replaced by
/// copies. The rows of a tiered table, or of one with rows of different widths, are not there: nobody may read these addresses,
/// and no block is copied. The overlay's rows lie behind, at the same stride, and each has a place for the version that it replaced. Any thread may read rows
/// that it was given; one thread at a time takes and writes them.
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
  uint8_t* row(uint32_t number) { return rows_ + size_t{number} * stride_; }
  /// Whether a row is one of the overlay, not of the file.
  bool IsOverlayRow(uint32_t number) const { return number >= first_row_; }
  /// The version that the version in an overlay row has replaced.
  std::atomic<VersionRef>& replaced(uint32_t number) const { return links_[number - first_row_]; }
  void SetReplaced(uint32_t number, VersionRef version) {
    // Pages of which nothing is written cost no memory.
    if (replaced(number).load(std::memory_order_relaxed) == version) return;
    replaced(number).store(version, std::memory_order_release);
  }

  /// Makes Take() succeed for so many rows. \return RESOURCE_EXHAUSTED beyond the capacity, or without memory.
  absl::Status Reserve(uint32_t count);
  uint32_t Take() noexcept;
  void Give(uint32_t number) noexcept;
  /// Returns the overlay rows that are taken.
  size_t taken() const { return taken_; }
  /// Returns the memory of overlay rows, and of copied blocks beside which those of the table stay in memory.
  size_t bytes() const {
    return size_t{used_} * (stride_ + sizeof(VersionRef)) + taken_rows_.capacity() * 8 + copied_bytes_;
  }
  /// Gives the memory behind the last row that is taken back to the operating system, if it is more than half and much.
  void Shrink() noexcept;

  // Blocks of the rows of the file, of 2 MB, which are copied as a whole, so that they can have huge pages:
  size_t BlockOf(uint32_t row) const { return (in_page_ + size_t{row} * stride_) / kBlockBytes; }
  /// Returns the first row that begins in a block, and the one after the last.
  std::pair<uint32_t, uint32_t> RowsOf(size_t block) const;
  bool IsCopied(size_t block) const { return copied_[block]; }
  /// Returns the blocks of a row, which may be the same.
  std::array<size_t, 2> BlocksOf(uint32_t row) const { return {BlockOf(row), LastBlockOf(row)}; }
  /// Whether rows of the file are there, so that blocks of them can be copied.
  bool has_file_rows() const { return !table_.copies_rows(); }
  /// Replaces a block by a copy; readers do not notice. \return false if there is no memory.
  bool Copy(size_t block) noexcept;
  /// Whether the blocks of a row, which may be two, were copied, so that it can be written.
  bool IsWritable(uint32_t row) const { return copied_[BlockOf(row)] && copied_[LastBlockOf(row)]; }
  /// Whether this is the only overlay of the file in this process.
  bool IsOnlyOne() const;

 private:
  explicit OverlayMemory(const EmbeddingTable& table) : table_(table), stride_(table.row_stride()) {}

  static constexpr size_t kBlockBytes = size_t{2} << 20;

  size_t table_bytes() const;
  std::pair<size_t, size_t> BytesOf(size_t block) const;
  size_t LastBlockOf(uint32_t row) const { return (in_page_ + size_t{row + 1} * stride_ - 1) / kBlockBytes; }
  absl::Status Reserve();
  absl::Status MapTable();

  const EmbeddingTable& table_;
  const uint32_t stride_;
  CommittedMemory row_memory_, link_memory_;
  uint8_t* rows_ = nullptr;
  std::atomic<VersionRef>* links_ = nullptr;
  uint32_t first_row_ = 0;  // the first overlay row, which is above all numbers of the table
  uint32_t capacity_ = 0;
  uint32_t used_ = 0;   // overlay rows, from the first one on
  uint32_t taken_ = 0;  // of these
  // A bit for each overlay row. The lowest ones are taken first, so that memory at the end can go.
  std::vector<uint64_t> taken_rows_;
  size_t next_free_ = 0;       // no word before it has a row that is free
  size_t in_page_ = 0;         // where row 0 is in a huge page
  std::vector<bool> copied_;   // blocks
  size_t copied_bytes_ = 0;    // of the blocks beside which those of the table stay in memory
  uint8_t* copies_ = nullptr;  // addresses at which blocks are copied before they take their places; null: none yet
};

}  // namespace processor

#endif  // PROCESSOR_LIVE_OVERLAY_MEMORY_H_
