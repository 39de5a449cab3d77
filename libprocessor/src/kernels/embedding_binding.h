// SPDX-License-Identifier: Apache-2.0
// A plan with its tables: how wide every column is, which rows lookups share, and what no column covers.
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
#include "src/tables/embedding_table.h"

namespace processor {

class EmbeddingBinding {
 public:
  /// The rows of a table for a key. Columns with the same key and table share one.
  struct Lookup {
    int key;
    const EmbeddingTable* table;
    uint32_t empty_row;  // for rows without a value; kNoRow: zeros
  };

  struct Column {
    const PlanColumn* plan;
    // Of a lookup:
    int lookup;
    RowSource source;
    uint32_t row_bytes;
    CopyRowsFn copy;
    PoolRowsFn pool;
  };

  /// Columns of an output that begin as `initial`, because no column writes them without adding.
  struct Gap {
    int output;
    int64_t offset;
    int64_t width;
  };

  /// Fits tables and plan. Where values lie side by side, the width depends on the request too: a binding holds for
  /// requests with the numbers of values that it was made for.
  /// \return INVALID_ARGUMENT that names the column that does not fit.
  static absl::Status Make(const EmbeddingPlan& plan, absl::Span<const KeySteps> steps,
                           std::vector<std::shared_ptr<const EmbeddingTable>> tables, const EmbeddingRequest& request,
                           std::shared_ptr<const EmbeddingBinding>* binding);

  /// Does it hold for this request?
  bool Fits(const EmbeddingRequest& request) const {
    for (const auto& [key, per_row] : side_by_side_) {
      if (request.keys[key].per_row != per_row) return false;
    }
    return true;
  }

  absl::Span<const std::shared_ptr<const EmbeddingTable>> tables() const { return tables_; }
  /// In the order of their keys.
  absl::Span<const Lookup> lookups() const { return lookups_; }
  absl::Span<const Column> columns() const { return columns_; }
  absl::Span<const Gap> gaps() const { return gaps_; }

 private:
  EmbeddingBinding() = default;

  absl::Status AddColumn(const EmbeddingPlan& plan, absl::Span<const KeySteps> steps, int number);
  absl::Status FindEmptyRow(const PlanColumn& column, int number, uint32_t* row) const;
  void SortLookups();
  absl::Status Cover(const EmbeddingPlan& plan, const EmbeddingRequest& request);

  std::vector<std::shared_ptr<const EmbeddingTable>> tables_;
  std::vector<Lookup> lookups_;
  std::vector<Column> columns_;
  std::vector<Gap> gaps_;
  std::vector<std::pair<int, int64_t>> side_by_side_;  // keys and their values a row
};

}  // namespace processor

#endif  // PROCESSOR_KERNELS_EMBEDDING_BINDING_H_
