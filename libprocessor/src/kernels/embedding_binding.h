// SPDX-License-Identifier: Apache-2.0
// An embedding plan together with its tables: the width of every column, the rows that lookups share, and the gaps that no
// column covers. It is constant once it is made; a kernel owns it, and the threads of its requests read it.
#ifndef PROCESSOR_KERNELS_EMBEDDING_BINDING_H_
#define PROCESSOR_KERNELS_EMBEDDING_BINDING_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "src/kernels/embedding_plan.h"
#include "src/kernels/embedding_request.h"
#include "src/kernels/key_steps.h"
#include "src/kernels/row_kernels.h"
#include "src/live/epoch_view.h"
#include "src/tables/embedding_table.h"

namespace processor {

class EmbeddingBinding {
 public:
  /// The rows of a table for a key. Columns with the same key and table share a lookup.
  struct Lookup {
    int key;
    const EmbeddingTable* table;
    int live;                 // number of the table in a live model, or -1
    const PlanColumn* empty;  // whose key `empty` is for rows without a value; null: zeros
  };

  /// Rows with which those of a column are multiplied.
  struct Factor {
    int lookup;
    RowSource source;
    uint32_t row_bytes;
    CopyRowsFn multiply;
  };

  struct Column {
    const PlanColumn* plan;
    // For a lookup:
    int lookup;
    RowSource source;
    uint32_t row_bytes;
    CopyRowsFn copy;  // or add, if the column accumulates
    PoolRowsFn pool;
    CopyRowsFn copy_first;  // of a product, which factors follow
    std::vector<Factor> factors;
  };

  /// A part of an output that starts as `initial`, because no column overwrites it.
  struct Gap {
    int output;
    int64_t offset;
    int64_t width;
  };

  struct Table {
    std::shared_ptr<const EmbeddingTable> table;
    int live = -1;                  // its number in a live model
    const uint8_t* rows = nullptr;  // row 0, where epochs of a live model have it; null: rows are copied
  };

  /// Binds the tables to the plan. The width of values that lie side by side also depends on the request, so a binding
  /// holds only for requests with the same numbers of values.
  /// \return INVALID_ARGUMENT that names the column that does not fit.
  static absl::Status Make(const EmbeddingPlan& plan, absl::Span<const KeySteps> steps, std::vector<Table> tables,
                           const EmbeddingRequest& request, std::shared_ptr<const EmbeddingBinding>* binding);

  /// Finds for each lookup the row for those without a value; kNoRow: zeros. `view`: of the live model, if there is one.
  /// \return INVALID_ARGUMENT if a table refuses the key.
  absl::Status FindEmptyRows(const EpochView* view, std::vector<uint32_t>* rows) const;

  /// Whether the binding holds for a request.
  bool Fits(const EmbeddingRequest& request) const {
    for (const auto& [key, per_row] : side_by_side_) {
      if (request.keys[key].per_row != per_row) return false;
    }
    return true;
  }

  /// Whether rows have to be brought into memory before they are read.
  bool has_tiered() const { return has_tiered_; }
  /// Whether kernels read copies of some rows: these, and rows of different widths.
  bool copies_rows() const { return copies_rows_; }

  /// Returns the lookups in the order of their keys.
  absl::Span<const Lookup> lookups() const { return lookups_; }
  absl::Span<const Column> columns() const { return columns_; }
  absl::Span<const Gap> gaps() const { return gaps_; }

 private:
  EmbeddingBinding() = default;

  absl::Status AddColumn(const EmbeddingPlan& plan, absl::Span<const KeySteps> steps, int number);
  absl::Status AddLookup(absl::Span<const KeySteps> steps, int number, const PlanFactor& wanted,
                         const PlanColumn* empty, int* lookup);
  absl::Status CheckEmptyKey(const PlanColumn& column, int number) const;
  void SortLookups();
  absl::Status Cover(const EmbeddingPlan& plan, const EmbeddingRequest& request);

  bool has_tiered_ = false, copies_rows_ = false;
  std::vector<Table> tables_;
  std::vector<Lookup> lookups_;
  std::vector<Column> columns_;
  std::vector<Gap> gaps_;
  std::vector<std::pair<int, int64_t>> side_by_side_;  // keys and their values a row
};

}  // namespace processor

#endif  // PROCESSOR_KERNELS_EMBEDDING_BINDING_H_
