// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/sequence_pooling.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace processor {
namespace {

/// The greater of two numbers as TensorFlow's `Max` takes it: NaN where either is, of 0 and -0 the second.
float Greater(float a, float b) {
  const float greater = a > b ? a : b;
  return a != a ? a : greater;
}

/// `values` where a position of this weight counts, else `padding`. Masks are hard to predict, and the compiler would make
/// a branch of a conditional expression.
PROCESSOR_ALWAYS_INLINE const float* ValuesOrPadding(float weight, const float* values, const float* padding) {
  const auto here = reinterpret_cast<uintptr_t>(values), there = reinterpret_cast<uintptr_t>(padding);
  // Of the absolute value, since NaN counts: one comparison instead of two.
  const bool pads = std::fabs(weight) <= 0;
  return reinterpret_cast<const float*>(here ^ ((here ^ there) & -uintptr_t{pads}));
}

/// The maximum of one column, in order.
float ColumnMaximum(const float* values, const float* weights, int64_t length, int64_t dim, const PoolingRule& rule) {
  float most = -std::numeric_limits<float>::infinity();
  for (int64_t t = 0; t < length; ++t, values += dim) {
    if (rule.shift) {
      most = Greater(most, *values + (1 - weights[t]) * rule.padding);
    } else {
      most = Greater(most, *ValuesOrPadding(weights[t], values, &rule.padding));
    }
  }
  return most;
}

/// The maxima of neighboring columns. They stay in registers over all positions: in `dst` each position would wait for
/// the store of the one before.
template <int kLanes, int kVectors, bool kShift>
PROCESSOR_ALWAYS_INLINE void BlockMaxima(const float* values, const float* weights, int64_t length, int64_t dim,
                                         const PoolingRule& rule, float* dst) {
  constexpr int kColumns = kLanes * kVectors;
  float padding[kColumns];
  std::fill_n(padding, kColumns, rule.padding);
  Vector<kLanes> most[kVectors], sums[kVectors], value;
  for (int i = 0; i < kVectors; ++i) {
    sums[i] = Vector<kLanes>{};
    most[i] = sums[i] - std::numeric_limits<float>::infinity();
  }
  for (int64_t t = 0; t < length; ++t) {
    const float* row = values + t * dim;
    const float* src = kShift ? row : ValuesOrPadding(weights[t], row, padding);
    const float added = kShift ? (1 - weights[t]) * rule.padding : 0;
    for (int i = 0; i < kVectors; ++i) {
      Load<kLanes>(src + i * kLanes, value);
      if (kShift) value += added;
      // The instruction for this loses a NaN that another number follows. A sum keeps it, and is cheaper than a comparison.
      most[i] = most[i] > value ? most[i] : value;
      sums[i] += value;
    }
  }
  for (int i = 0; i < kVectors; ++i) Store<kLanes>(most[i], dst + i * kLanes);
  for (int i = 1; i < kVectors; ++i) sums[0] += sums[i];
  const float sum = SumLanes<kLanes>(sums[0]);
  if (sum == sum) return;
  // There is a NaN, or infinities of both signs.
  for (int i = 0; i < kColumns; ++i) dst[i] = ColumnMaximum(values + i, weights, length, dim, rule);
}

template <int kLanes, bool kShift>
PROCESSOR_ALWAYS_INLINE void Maxima(const float* values, const float* weights, int64_t length, int64_t dim,
                                    const PoolingRule& rule, float* dst) {
  int64_t i = 0;
  for (; i + 4 * kLanes <= dim; i += 4 * kLanes) {
    BlockMaxima<kLanes, 4, kShift>(values + i, weights, length, dim, rule, dst + i);
  }
  if (i + 2 * kLanes <= dim) {
    BlockMaxima<kLanes, 2, kShift>(values + i, weights, length, dim, rule, dst + i);
    i += 2 * kLanes;
  }
  if (i + kLanes <= dim) {
    BlockMaxima<kLanes, 1, kShift>(values + i, weights, length, dim, rule, dst + i);
    i += kLanes;
  }
  if (i == dim) return;
  if (dim >= kLanes) {
    // The last columns together with some that are there already.
    i = dim - kLanes;
    BlockMaxima<kLanes, 1, kShift>(values + i, weights, length, dim, rule, dst + i);
  } else if constexpr (kLanes > kLanesPlain) {
    Maxima<kLanes / 2, kShift>(values, weights, length, dim, rule, dst);
  } else {
    for (; i < dim; ++i) dst[i] = ColumnMaximum(values + i, weights, length, dim, rule);
  }
}

template <int kLanes>
PROCESSOR_ALWAYS_INLINE void Pool(const float* values, const float* weights, int64_t length, int64_t dim,
                                  const PoolingRule& rule, float count, float* dst) {
  if (rule.combiner == Pooling::kMax) {
    if (!rule.shift) {
      // One position of padding counts as many in a row do.
      for (; length > 1 && weights[length - 1] == 0 && weights[length - 2] == 0; --length) {
      }
      for (; length > 1 && weights[0] == 0 && weights[1] == 0; --length, ++weights) values += dim;
    }
    return rule.shift ? Maxima<kLanes, true>(values, weights, length, dim, rule, dst)
                      : Maxima<kLanes, false>(values, weights, length, dim, rule, dst);
  }
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
  Pool<kLanesAvx512>(values, weights, length, dim, rule, count, dst);
}

PROCESSOR_TARGET_AVX2 void PoolAvx2(const float* values, const float* weights, int64_t length, int64_t dim,
                                    const PoolingRule& rule, float count, float* dst) {
  Pool<kLanesAvx2>(values, weights, length, dim, rule, count, dst);
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
      return Pool<kLanesPlain>(values, weights, length, dim, rule, count, dst);
  }
}

}  // namespace processor
