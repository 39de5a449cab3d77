// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/head_attention.h"

#include <algorithm>

#include "src/kernels/row_math.h"
#include "src/kernels/vector_loops.h"

namespace processor {
namespace {

// Columns of a strip of a product: two vectors of the widest instruction set.
constexpr int64_t kStrip = 2 * kMostLanes;

int64_t Padded(int64_t size) { return (size + kStrip - 1) / kStrip * kStrip; }

/// `dst = src · operand` for kRows rows and one strip of columns, whose sums stay in registers.
template <int kLanes, int kRows>
PROCESSOR_ALWAYS_INLINE void MultiplyStrip(const float* src, int64_t src_stride, int64_t k, const float* operand,
                                           int64_t operand_stride, float* dst, int64_t dst_stride) {
  constexpr int kVectors = 2;
  Vector<kLanes> sums[kRows][kVectors] = {};
  for (int64_t i = 0; i < k; ++i, operand += operand_stride) {
    Vector<kLanes> row[kVectors];
    for (int v = 0; v < kVectors; ++v) Load<kLanes>(operand + v * kLanes, row[v]);
    for (int r = 0; r < kRows; ++r) {
      const float factor = src[r * src_stride + i];
      for (int v = 0; v < kVectors; ++v) sums[r][v] += factor * row[v];
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) Store<kLanes>(sums[r][v], dst + r * dst_stride + v * kLanes);
  }
}

/// `dst = src · operand`; the operand and dst have whole strips of columns.
template <int kLanes>
PROCESSOR_ALWAYS_INLINE void Multiply(int64_t rows, const float* src, int64_t src_stride, int64_t k,
                                      const float* operand, int64_t columns, float* dst) {
  for (int64_t row = 0; row < rows;) {
    const int64_t left = rows - row;
    const float* from = src + row * src_stride;
    float* to = dst + row * columns;
    for (int64_t c = 0; c < columns; c += 2 * kLanes) {
      if (left >= 4) {
        MultiplyStrip<kLanes, 4>(from, src_stride, k, operand + c, columns, to + c, columns);
      } else if (left >= 2) {
        MultiplyStrip<kLanes, 2>(from, src_stride, k, operand + c, columns, to + c, columns);
      } else {
        MultiplyStrip<kLanes, 1>(from, src_stride, k, operand + c, columns, to + c, columns);
      }
    }
    row += left >= 4 ? 4 : left >= 2 ? 2 : 1;
  }
}

PROCESSOR_ALWAYS_INLINE void Mask(const AttentionShape& shape, const HeadAttentionRule& rule,
                                  const AttentionMasks& masks, int64_t head, float* scores, int64_t stride) {
  for (int64_t q = 0; q < shape.queries; ++q, scores += stride) {
    for (int64_t k = 0; k < shape.keys; ++k) scores[k] *= rule.scale;
    if (masks.bias.data != nullptr) {
      const float* bias = masks.bias.data + head * masks.bias.head_stride + q * masks.bias.query_stride;
      for (int64_t k = 0; k < shape.keys; ++k) scores[k] += bias[k * masks.bias.key_stride];
    }
    if (masks.condition.data != nullptr) {
      const bool* counts = masks.condition.data + head * masks.condition.head_stride + q * masks.condition.query_stride;
      for (int64_t k = 0; k < shape.keys; ++k) {
        scores[k] = counts[k * masks.condition.key_stride] ? scores[k] : rule.padding;
      }
    }
  }
}

template <int kLanes>
PROCESSOR_ALWAYS_INLINE void Heads(const AttentionShape& shape, const HeadAttentionRule& rule, const RowMath& math,
                                   const float* query, const float* key, const float* value,
                                   const AttentionMasks& masks, float* scratch, float* dst) {
  const int64_t keys = Padded(shape.keys), columns = Padded(shape.value_dim);
  float* turned = scratch;                       // [dim, keys]
  float* whole = turned + shape.dim * keys;      // [keys, value_dim]
  float* scores = whole + shape.keys * columns;  // [queries, keys]
  float* sums = scores + shape.queries * keys;   // [queries, value_dim]
  const int64_t query_stride = shape.heads * shape.dim, value_stride = shape.heads * shape.value_dim;
  // What is beyond the last key and element stays zero for all heads.
  std::fill(turned, scores, 0.0f);
  for (int64_t head = 0; head < shape.heads; ++head) {
    for (int64_t k = 0; k < shape.keys; ++k) {
      const float* from = key + k * query_stride + head * shape.dim;
      for (int64_t e = 0; e < shape.dim; ++e) turned[e * keys + k] = from[e];
      std::copy_n(value + k * value_stride + head * shape.value_dim, shape.value_dim, whole + k * columns);
    }
    Multiply<kLanes>(shape.queries, query + head * shape.dim, query_stride, shape.dim, turned, keys, scores);
    Mask(shape, rule, masks, head, scores, keys);
    math.activate({ActivationKind::kSoftmax}, shape.queries, shape.keys, {scores, keys});
    Multiply<kLanes>(shape.queries, scores, keys, shape.keys, whole, columns, sums);
    for (int64_t q = 0; q < shape.queries; ++q) {
      const float gate = masks.gate != nullptr ? masks.gate[q] : 1.0f;
      float* to = dst + q * value_stride + head * shape.value_dim;
      for (int64_t e = 0; e < shape.value_dim; ++e) to[e] = gate * sums[q * columns + e];
    }
  }
}

PROCESSOR_TARGET_AVX512 void HeadsAvx512(const AttentionShape& shape, const HeadAttentionRule& rule,
                                         const RowMath& math, const float* query, const float* key, const float* value,
                                         const AttentionMasks& masks, float* scratch, float* dst) {
  Heads<kLanesAvx512>(shape, rule, math, query, key, value, masks, scratch, dst);
}

PROCESSOR_TARGET_AVX2 void HeadsAvx2(const AttentionShape& shape, const HeadAttentionRule& rule, const RowMath& math,
                                     const float* query, const float* key, const float* value,
                                     const AttentionMasks& masks, float* scratch, float* dst) {
  Heads<kLanesAvx2>(shape, rule, math, query, key, value, masks, scratch, dst);
}

}  // namespace

int64_t AttentionScratch(const AttentionShape& shape) {
  const int64_t keys = Padded(shape.keys), columns = Padded(shape.value_dim);
  return (shape.dim + shape.queries) * keys + (shape.keys + shape.queries) * columns;
}

void AttendHeads(const AttentionShape& shape, const HeadAttentionRule& rule, const float* query, const float* key,
                 const float* value, const AttentionMasks& masks, float* scratch, float* dst, Isa isa) {
  if (shape.keys == 0) {
    // A sum over nothing.
    std::fill_n(dst, shape.queries * shape.heads * shape.value_dim, 0.0f);
    return;
  }
  const RowMath& math = RowMathFor(isa);
  switch (isa) {
    case Isa::kAvx512:
      return HeadsAvx512(shape, rule, math, query, key, value, masks, scratch, dst);
    case Isa::kAvx2:
      return HeadsAvx2(shape, rule, math, query, key, value, masks, scratch, dst);
    case Isa::kPlain:
      return Heads<kLanesPlain>(shape, rule, math, query, key, value, masks, scratch, dst);
  }
}

}  // namespace processor
