// SPDX-License-Identifier: Apache-2.0
// Copies the rows that a block of a request needs, so that kernels read them like others: those of tiered tables, which are
// not in memory, and those of tables whose rows have different widths.
#ifndef PROCESSOR_KERNELS_TIERED_GATHER_H_
#define PROCESSOR_KERNELS_TIERED_GATHER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "src/kernels/embedding_binding.h"
#include "src/kernels/embedding_request.h"
#include "src/kernels/embedding_rows.h"
#include "src/tables/tiered_fetch.h"

namespace processor {

/// The rows of one block, in the order in which its lookups read them. One thread uses it, and keeps it for the next block.
class TieredGather {
 public:
  /// Rows that are brought into memory at a time take about so much.
  static constexpr size_t kBlockBytes = size_t{8} << 20;

  /// Returns how many rows of the batch a block may have.
  static int64_t RowsOfBlock(const EmbeddingBinding& binding, const EmbeddingRequest& request);

  /// Copies the rows of lookups in such tables, and replaces their numbers by those of the copies. Rows that deltas have
  /// changed are copied from where they are.
  /// \return as TieredFetch::Finish().
  absl::Status Fetch(const EmbeddingBinding& binding, const EmbeddingRequest& request, int64_t begin, int64_t end,
                     EmbeddingRows* rows);

  /// Returns copy 0 of a lookup in such a table.
  const uint8_t* rows(int lookup) const { return rows_[lookup]; }
  /// Returns the number of the row of a lookup for those without a value, or kNoRow.
  uint32_t empty_row(int lookup) const { return empty_rows_[lookup]; }

  size_t bytes() const {
    return memory_.bytes() + fetch_.bytes() + fetched_.capacity() * sizeof(Fetched) +
           fetched_numbers_.capacity() * sizeof(uint32_t) + codes_.capacity();
  }

 private:
  // Rows of a tiered table with different widths, which get zeros once all have come.
  struct Fetched {
    const EmbeddingTable* table;
    const uint8_t* changed;  // row 0 of those that deltas have changed, or null
    size_t first, count;     // in fetched_numbers_
    uint8_t* dst;
  };

  TieredFetch fetch_;
  GrowingArray<uint8_t> memory_;
  std::vector<const uint8_t*> rows_;
  std::vector<uint32_t> empty_rows_;
  std::vector<Fetched> fetched_;
  std::vector<uint32_t> fetched_numbers_;
  std::vector<uint8_t> codes_;  // of a row
};

}  // namespace processor

#endif  // PROCESSOR_KERNELS_TIERED_GATHER_H_
