// SPDX-License-Identifier: Apache-2.0
// Sums of the rows of a bag of keys, as tf.nn.embedding_lookup_sparse has them:
//
//     sum: Σ w x,   mean: Σ w x / Σ w,   sqrtn: Σ w x / √(Σ w²)
//
// Each product is rounded, then added in the order of positions. Where the divisor is zero, as in an empty bag, the result
// is zero.
#ifndef ELASTIC_TRAINING_POOLING_POOLING_H_
#define ELASTIC_TRAINING_POOLING_POOLING_H_

#include <cstddef>
#include <cstdint>

namespace elastic_training {

enum class Combiner { kNone, kSum, kMean, kSqrtn };

struct Bags {
  Combiner combiner = Combiner::kSum;
  /// Bag b has the positions splits[b] to splits[b + 1] [count + 1].
  const int64_t* splits = nullptr;
  size_t count = 0;
  /// By position; null: 1.
  const float* weights = nullptr;
  /// Positions that do not belong to their bags; null: none.
  const uint8_t* masked = nullptr;
};

/// Pools rows [positions, dim] into `pooled` [bags, dim].
void Pool(const Bags& bags, const float* rows, size_t dim, float* pooled);

/// Writes for each position the bag whose gradient it has, and the factor: weight divided by the bag's divisor.
void PoolGradient(const Bags& bags, int32_t* bag_of, float* scales);

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_POOLING_POOLING_H_
