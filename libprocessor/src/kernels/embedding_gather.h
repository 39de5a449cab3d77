// SPDX-License-Identifier: Apache-2.0
// Computes rows of the outputs of an embedding group, one block of the batch at a time: first keys, then row numbers, then
// the rows themselves, which are prefetched before they are read.
#ifndef PROCESSOR_KERNELS_EMBEDDING_GATHER_H_
#define PROCESSOR_KERNELS_EMBEDDING_GATHER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "src/kernels/embedding_binding.h"
#include "src/kernels/embedding_plan.h"
#include "src/kernels/embedding_request.h"
#include "src/kernels/embedding_rows.h"
#include "src/kernels/key_steps.h"
#include "src/kernels/row_fetcher.h"
#include "src/kernels/row_products.h"
#include "src/kernels/tiered_gather.h"

namespace processor {

/// The memory with which one thread computes a block; it is kept for the next one.
struct GatherScratch {
  EmbeddingRows rows;
  TieredGather tiered;
  GrowingArray<uint32_t> pruned;  // rows of one lookup
  RowProducts products;
  std::vector<RowFetcher::Run> runs;

  size_t bytes() const { return rows.bytes() + pruned.bytes() + products.bytes(); }
};

struct Gather {
  const EmbeddingPlan& plan;
  absl::Span<const KeySteps> steps;
  const EmbeddingBinding& binding;
  const EmbeddingRequest& request;
  absl::Span<float* const> outputs;

  /// Writes rows [begin, end) of the batch to all outputs.
  /// \return INVALID_ARGUMENT for an absent key if the table refuses these; DATA_LOSS or RESOURCE_EXHAUSTED if rows of a
  /// tiered table cannot be read.
  absl::Status Rows(int64_t begin, int64_t end, GatherScratch* scratch) const;

 private:
  void FillGaps(int64_t begin, int64_t end) const;
  void AddRuns(const EmbeddingBinding::Column& column, int64_t begin, int64_t end, GatherScratch* scratch) const;
  void WriteLookup(const EmbeddingBinding::Column& column, int64_t begin, int64_t end, GatherScratch* scratch,
                   RowFetcher* fetcher) const;
  void WriteProducts(const EmbeddingBinding::Column& column, int64_t begin, int64_t end, GatherScratch* scratch,
                     RowFetcher* fetcher) const;
};

}  // namespace processor

#endif  // PROCESSOR_KERNELS_EMBEDDING_GATHER_H_
