// SPDX-License-Identifier: Apache-2.0
// Sums, means and maxima over the positions of padded sequences.
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
  /// A mean divides by `max(count + epsilon, least)`; by default that is `count + epsilon`, be it negative. A `least` above
  /// 0 of at most kNoNan stands for TensorFlow's DivNoNan: 0 where the count is 0, whatever is summed.
  float epsilon = 0;
  float least = std::numeric_limits<float>::lowest();
  /// Of a maximum: what a position of weight 0 counts as, or with `shift` what is added to it (times 1 - weight).
  float padding = 0;
  bool shift = false;
};

/// Pools one sequence.
///
/// Sum and mean weigh positions, also those of weight 0: a NaN or infinity there gives NaN, as TensorFlow's product does.
///
/// \param values [length, dim]
/// \param weights [length], 1 for what counts and 0 for padding in most models
/// \param count of a mean: the sum of the weights, in most models
/// \param dst [dim]
void PoolSequence(const float* values, const float* weights, int64_t length, int64_t dim, const PoolingRule& rule,
                  float count, float* dst, Isa isa = ThisCpu().isa);

/// `dst = Σ_t weights[t] · values[t]`
PROCESSOR_ALWAYS_INLINE void WeightedSum(const float* values, const float* weights, int64_t length, int64_t dim,
                                         float* dst) {
  for (int64_t i = 0; i < dim; ++i) dst[i] = 0;
  for (int64_t t = 0; t < length; ++t, values += dim) {
    for (int64_t i = 0; i < dim; ++i) dst[i] += weights[t] * values[i];
  }
}

}  // namespace processor

#endif  // PROCESSOR_KERNELS_SEQUENCE_POOLING_H_
