// SPDX-License-Identifier: Apache-2.0
// The features of one request, and which of their values belong to which row of the batch.
#ifndef PROCESSOR_KERNELS_EMBEDDING_REQUEST_H_
#define PROCESSOR_KERNELS_EMBEDDING_REQUEST_H_

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "src/kernels/embedding_plan.h"
#include "tensorflow/core/framework/types.pb.h"

namespace processor {

/// A feature tensor.
struct FeatureView {
  tensorflow::DataType type;
  const void* data;
  int64_t elements;
  int rank;
  int64_t rows;     // the first dimension; 0 for a scalar
  int64_t second;   // the second dimension; 1 where there is none
  int64_t per_row;  // the product of all but the first
};

/// The values of a key. Row r has those from Begin(r) to Begin(r + 1).
struct KeyValues {
  const void* values = nullptr;
  int64_t count = 0;
  int64_t per_row = 0;              // of a dense key; -1: as the splits say
  const int64_t* splits = nullptr;  // [batch + 1]

  int64_t Begin(int64_t row) const { return splits == nullptr ? row * per_row : splits[row]; }
};

/// What a request asks for. Kept from one to the next, so that its memory is.
struct EmbeddingRequest {
  std::vector<FeatureView> features;
  int64_t max_rows = 0;  // of a batch
  int64_t batch = 0;
  std::vector<KeyValues> keys;
  std::vector<std::vector<int64_t>> splits;  // by key

  std::vector<int64_t> lengths;  // by key: the second dimension of its feature

  size_t bytes() const {
    size_t sum = 0;
    for (const auto& split : splits) sum += split.capacity() * sizeof(int64_t);
    return sum;
  }

  /// Rows of an output for each row of the batch: T of its sequence, or 1.
  int64_t Repeats(const PlanOutput& output) const { return output.sequence < 0 ? 1 : lengths[output.sequence]; }
};

/// Can features of these types be what the plan takes them for?
/// \return INVALID_ARGUMENT that names the feature.
absl::Status CheckFeatureTypes(const EmbeddingPlan& plan, absl::Span<const tensorflow::DataType> types);

/// Fills the rest of a request whose `features` are set: checks their shapes and what they say of rows, so that nothing
/// is read beyond them. `reserve` is asked for the bytes of the rows that features claim before they are allocated.
/// \return INVALID_ARGUMENT that names the features that do not fit, or what `reserve` returns.
absl::Status LayOutRequest(const EmbeddingPlan& plan, const std::function<absl::Status(int64_t)>& reserve,
                           EmbeddingRequest* request);

}  // namespace processor

#endif  // PROCESSOR_KERNELS_EMBEDDING_REQUEST_H_
