// SPDX-License-Identifier: Apache-2.0
// Sums, means and maxima over the positions of padded sequences. Any thread may call these functions.
#ifndef PROCESSOR_KERNELS_SEQUENCE_POOLING_H_
#define PROCESSOR_KERNELS_SEQUENCE_POOLING_H_

#include <cstdint>
#include <limits>

#include "src/kernels/cpu_features.h"
#include "src/kernels/vector_loops.h"

namespace processor {

constexpr float kNoNan = 1e-30f;

enum class Pooling { kSum, kMean, kMax };

/// How a sequence is pooled.
struct PoolingRule {
  Pooling combiner = Pooling::kSum;
  /// A mean divides by `max(count + epsilon, least)`; by default that is `count + epsilon`, even if it is negative. A `least`
  /// above 0 and up to kNoNan means TensorFlow's DivNoNan: the mean is 0 if the count is 0, whatever is summed.
  float epsilon = 0;
  float least = std::numeric_limits<float>::lowest();
  /// For a maximum: the value of a position of weight 0 or, with `shift`, what is added to it (times 1 - weight).
  float padding = 0;
  bool shift = false;
};

/// Pools one sequence.
///
/// Sum and mean also multiply positions of weight 0, so that NaN or infinity there results in NaN, as in TensorFlow.
///
/// \param values [length, dim]
/// \param weights [length], in most models 1 for positions that count and 0 for padding
/// \param count for a mean: in most models the sum of the weights
/// \param dst [dim]
void PoolSequence(const float* values, const float* weights, int64_t length, int64_t dim, const PoolingRule& rule,
                  float count, float* dst, Isa isa = ThisCpu().isa);

/// Computes `dst = Σ_t weights[t] · values[t]`
PROCESSOR_ALWAYS_INLINE void WeightedSum(const float* values, const float* weights, int64_t length, int64_t dim,
                                         float* dst) {
  for (int64_t i = 0; i < dim; ++i) dst[i] = 0;
  for (int64_t t = 0; t < length; ++t, values += dim) {
    for (int64_t i = 0; i < dim; ++i) dst[i] += weights[t] * values[i];
  }
}

}  // namespace processor

#endif  // PROCESSOR_KERNELS_SEQUENCE_POOLING_H_
