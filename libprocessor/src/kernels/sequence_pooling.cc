// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/sequence_pooling.h"

#include <algorithm>
#include <limits>

namespace processor {
namespace {

/// The greater of two numbers as TensorFlow's `Max` takes it: NaN where either is, of 0 and -0 the second.
PROCESSOR_ALWAYS_INLINE float Greater(float a, float b) {
  const float greater = a > b ? a : b;
  return a != a ? a : greater;
}

PROCESSOR_ALWAYS_INLINE void Maximum(const float* values, const float* weights, int64_t length, int64_t dim,
                                     const PoolingRule& rule, float* dst) {
  std::fill(dst, dst + dim, -std::numeric_limits<float>::infinity());
  for (int64_t t = 0; t < length; ++t, values += dim) {
    if (rule.shift) {
      const float added = (1 - weights[t]) * rule.padding;
      for (int64_t i = 0; i < dim; ++i) dst[i] = Greater(dst[i], values[i] + added);
    } else if (weights[t] != 0) {
      for (int64_t i = 0; i < dim; ++i) dst[i] = Greater(dst[i], values[i]);
    } else {
      for (int64_t i = 0; i < dim; ++i) dst[i] = Greater(dst[i], rule.padding);
    }
  }
}

PROCESSOR_ALWAYS_INLINE void Pool(const float* values, const float* weights, int64_t length, int64_t dim,
                                  const PoolingRule& rule, float count, float* dst) {
  if (rule.combiner == Pooling::kMax) return Maximum(values, weights, length, dim, rule, dst);
  WeightedSum(values, weights, length, dim, dst);
  if (rule.combiner == Pooling::kSum) return;
  if (rule.least > 0 && rule.least <= kNoNan && count + rule.epsilon == 0) {
    std::fill(dst, dst + dim, 0.0f);
    return;
  }
  const float divisor = std::max(count + rule.epsilon, rule.least);
  for (int64_t i = 0; i < dim; ++i) dst[i] /= divisor;
}

PROCESSOR_TARGET_AVX512 void PoolAvx512(const float* values, const float* weights, int64_t length, int64_t dim,
                                        const PoolingRule& rule, float count, float* dst) {
  Pool(values, weights, length, dim, rule, count, dst);
}

PROCESSOR_TARGET_AVX2 void PoolAvx2(const float* values, const float* weights, int64_t length, int64_t dim,
                                    const PoolingRule& rule, float count, float* dst) {
  Pool(values, weights, length, dim, rule, count, dst);
}

}  // namespace

void PoolSequence(const float* values, const float* weights, int64_t length, int64_t dim, const PoolingRule& rule,
                  float count, float* dst, Isa isa) {
  switch (isa) {
    case Isa::kAvx512:
      return PoolAvx512(values, weights, length, dim, rule, count, dst);
    case Isa::kAvx2:
      return PoolAvx2(values, weights, length, dim, rule, count, dst);
    case Isa::kPlain:
      return Pool(values, weights, length, dim, rule, count, dst);
  }
}

}  // namespace processor
