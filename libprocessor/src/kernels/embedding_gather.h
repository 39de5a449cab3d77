// SPDX-License-Identifier: Apache-2.0
// Computes rows of the outputs of an embedding group, a block of the batch at a time: keys, then numbers of rows, then
// the rows themselves, fetched from memory before they are read.
#ifndef PROCESSOR_KERNELS_EMBEDDING_GATHER_H_
#define PROCESSOR_KERNELS_EMBEDDING_GATHER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "src/kernels/embedding_binding.h"
#include "src/kernels/embedding_plan.h"
#include "src/kernels/embedding_request.h"
#include "src/kernels/key_steps.h"
#include "src/kernels/row_fetcher.h"
#include "tensorflow/core/platform/tstring.h"

namespace processor {

/// An array whose size only grows; what is in it is lost when it does.
template <typename T>
class GrowingArray {
 public:
  T* Get(size_t size) {
    if (size > size_) {
      data_.reset(new T[size]);
      size_ = size;
    }
    return data_.get();
  }
  size_t bytes() const { return size_ * sizeof(T); }

 private:
  std::unique_ptr<T[]> data_;
  size_t size_ = 0;
};

/// What one thread needs to compute a block. Kept from one block to the next.
struct GatherScratch {
  GrowingArray<int64_t> keys;
  GrowingArray<tensorflow::tstring> strings;
  GrowingArray<uint8_t> none;
  GrowingArray<uint32_t> rows;     // of all lookups
  GrowingArray<uint32_t> pruned;   // of one lookup
  std::vector<uint32_t*> lookups;  // into `rows`
  std::vector<RowFetcher::Run> runs;

  size_t bytes() const { return keys.bytes() + strings.bytes() + none.bytes() + rows.bytes() + pruned.bytes(); }
};

struct Gather {
  const EmbeddingPlan& plan;
  absl::Span<const KeySteps> steps;
  const EmbeddingBinding& binding;
  const EmbeddingRequest& request;
  absl::Span<float* const> outputs;

  /// Writes rows [begin, end) of the batch to all outputs.
  /// \return INVALID_ARGUMENT for a key that a table does not hold and refuses.
  absl::Status Rows(int64_t begin, int64_t end, GatherScratch* scratch) const;

 private:
  void FillGaps(int64_t begin, int64_t end) const;
  absl::Status FindRows(int64_t begin, int64_t end, GatherScratch* scratch) const;
  absl::Status RefuseKey(int key, int64_t position, const EmbeddingTable& table) const;
  void WriteLookup(const EmbeddingBinding::Column& column, int64_t begin, int64_t end, GatherScratch* scratch,
                   RowFetcher* fetcher) const;
};

}  // namespace processor

#endif  // PROCESSOR_KERNELS_EMBEDDING_GATHER_H_
