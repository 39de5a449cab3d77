// SPDX-License-Identifier: Apache-2.0
// The features of one request, and the row of the batch to which each of their values belongs. The thread of the request
// fills it; the threads that compute the request read it.
#ifndef PROCESSOR_KERNELS_EMBEDDING_REQUEST_H_
#define PROCESSOR_KERNELS_EMBEDDING_REQUEST_H_

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "src/kernels/embedding_plan.h"
#include "src/live/epoch_view.h"
#include "src/tables/early_rows.h"
#include "tensorflow/core/framework/types.pb.h"

namespace processor {

/// A feature tensor, which the request owns.
struct FeatureView {
  tensorflow::DataType type;
  const void* data;
  int64_t elements;
  int rank;
  int64_t rows;     // the first dimension; 0 for a scalar
  int64_t second;   // the second dimension; 1 if there is none
  int64_t per_row;  // the product of all but the first
};

/// The values of a key. Row r has the values from Begin(r) to Begin(r + 1).
struct KeyValues {
  const void* values = nullptr;
  int64_t count = 0;
  int64_t per_row = 0;              // of a dense key; -1: see splits
  const int64_t* splits = nullptr;  // [batch + 1]

  int64_t Begin(int64_t row) const { return splits == nullptr ? row * per_row : splits[row]; }
};

/// One request. It is kept for the next one, which reuses its memory.
struct EmbeddingRequest {
  std::vector<FeatureView> features;
  int64_t max_rows = 0;  // of a batch
  int64_t batch = 0;
  std::vector<KeyValues> keys;
  std::vector<std::vector<int64_t>> splits;  // by key

  EarlyRowsList early;  // what has been read of tiered tables before

  std::vector<int64_t> lengths;  // by key: the second dimension of its feature

  // What a live model may change with its epochs:
  const EpochView* view = nullptr;                // null: none is read
  std::vector<uint32_t> empty_rows;               // by lookup: for rows without a value; kNoRow: zeros
  std::vector<absl::Span<const float>> initial;   // by output; empty: zeros
  std::vector<absl::Span<const float>> matrices;  // by column

  size_t bytes() const {
    size_t sum = 0;
    for (const auto& split : splits) sum += split.capacity() * sizeof(int64_t);
    return sum;
  }

  /// Returns the rows of an output for each row of the batch: the length of its sequence, or 1.
  int64_t Repeats(const PlanOutput& output) const { return output.sequence < 0 ? 1 : lengths[output.sequence]; }
};

/// Checks whether features of these types fit the plan.
/// \return INVALID_ARGUMENT that names the feature.
absl::Status CheckFeatureTypes(const EmbeddingPlan& plan, absl::Span<const tensorflow::DataType> types);

/// Completes a request whose `features` are set. Checks their shapes and row numbers, so that nothing is read beyond them.
/// Before memory for the rows that features claim is allocated, `reserve` is called with its bytes.
/// \return INVALID_ARGUMENT that names the features that do not fit, or what `reserve` returns.
absl::Status LayOutRequest(const EmbeddingPlan& plan, const std::function<absl::Status(int64_t)>& reserve,
                           EmbeddingRequest* request);

}  // namespace processor

#endif  // PROCESSOR_KERNELS_EMBEDDING_REQUEST_H_
