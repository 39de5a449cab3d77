// SPDX-License-Identifier: Apache-2.0
// Where the rows of a table's file are: runs of rows of one width (docs/table_format.md). Plain data.
#ifndef PROCESSOR_TABLES_ROW_RUNS_H_
#define PROCESSOR_TABLES_ROW_RUNS_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "src/tables/table_header.h"

namespace processor {

/// Consecutive rows with the same number of elements; those that they lack are zeros.
struct RowRun {
  uint32_t first = 0;   // number of its first row
  uint32_t rows = 0;    // how many
  uint32_t dim = 0;     // elements of its rows
  uint32_t stride = 0;  // bytes from one row to the next
  uint32_t bytes = 0;   // of a row, without the padding after it
  uint64_t offset = 0;  // of its first row, from the beginning of row_data
};

/// The runs of a table, in the order of their rows.
class RowRuns {
 public:
  RowRuns() = default;
  /// `header`: its row type, numbers of rows, widths and stride are used.
  explicit RowRuns(const TableHeader& header);

  /// Returns the bytes of row_data.
  uint64_t bytes() const { return bytes_; }
  size_t size() const { return size_; }
  const RowRun& operator[](size_t i) const { return runs_[i]; }

  /// Returns the number of the run that has a row of the file.
  size_t NumberOf(uint32_t row) const {
    size_t run = 0;
    for (size_t i = 1; i < size_; ++i) run += row >= runs_[i].first;
    return run;
  }
  /// Returns this run.
  const RowRun& Of(uint32_t row) const { return runs_[NumberOf(row)]; }

 private:
  // Rows of full width, narrower ones, and default rows, which have full width.
  std::array<RowRun, kMostNarrowWidths + 2> runs_;
  size_t size_ = 0;
  uint64_t bytes_ = 0;
};

/// Returns the bytes from one narrow row to the next. Rows of full width may have another stride, which the header says.
uint32_t NarrowStride(RowType type, uint32_t dim);

}  // namespace processor

#endif  // PROCESSOR_TABLES_ROW_RUNS_H_
