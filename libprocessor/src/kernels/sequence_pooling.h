// SPDX-License-Identifier: Apache-2.0
// Sums, means and maxima over the positions of padded sequences.
#ifndef PROCESSOR_KERNELS_SEQUENCE_POOLING_H_
#define PROCESSOR_KERNELS_SEQUENCE_POOLING_H_

#include <cstdint>
#include <limits>

#include "src/kernels/cpu_features.h"
#include "src/kernels/vector_loops.h"

namespace processor {

enum class Pooling { kSum, kMean, kMax };

/// How a sequence is pooled.
struct PoolingRule {
  Pooling combiner = Pooling::kSum;
  /// A mean divides by `max(count + epsilon, least)`; by default that is `count + epsilon`, be it negative.
  float epsilon = 0;
  float least = std::numeric_limits<float>::lowest();
  /// Of a maximum: what a position of weight 0 counts as, or with `shift` what is added to it (times 1 - weight).
  float padding = 0;
  bool shift = false;
};

/// Pools one sequence.
///
/// Sum and mean weigh positions; those of weight 0 are not read, so that what padding holds does not matter.
///
/// \param values [length, dim]
/// \param weights [length], 1 for what counts and 0 for padding in most models
/// \param count of a mean: the sum of the weights, in most models
/// \param dst [dim]
void PoolSequence(const float* values, const float* weights, int64_t length, int64_t dim, const PoolingRule& rule,
                  float count, float* dst, Isa isa = ThisCpu().isa);

/// `dst = Σ_t weights[t] · values[t]`, over the positions of weight other than 0.
PROCESSOR_ALWAYS_INLINE void WeightedSum(const float* values, const float* weights, int64_t length, int64_t dim,
                                         float* dst) {
  for (int64_t i = 0; i < dim; ++i) dst[i] = 0;
  for (int64_t t = 0; t < length; ++t, values += dim) {
    if (weights[t] == 0) continue;
    for (int64_t i = 0; i < dim; ++i) dst[i] += weights[t] * values[i];
  }
}

}  // namespace processor

#endif  // PROCESSOR_KERNELS_SEQUENCE_POOLING_H_
