// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/head_attention.h"

#include <algorithm>
#include <utility>

#include "src/kernels/row_math.h"
#include "src/kernels/vector_loops.h"

namespace processor {
namespace {

// Fewer queries than this would leave most lanes of a vector empty.
constexpr int64_t kFewQueries = 4;

int64_t Padded(int64_t size) { return (size + kMostLanes - 1) / kMostLanes * kMostLanes; }

/// The left factor of a product; its rows, or its columns, may be apart.
struct Factor {
  const float* data;
  int64_t row_stride;
  int64_t column_stride;
};

/// `dst = src · operand` for kRows rows and kVectors vectors of columns, whose sums stay in registers.
template <int kLanes, int kRows, int kVectors>
PROCESSOR_ALWAYS_INLINE void MultiplyStrip(const Factor& src, int64_t k, const float* operand, int64_t columns,
                                           float* dst) {
  Vector<kLanes> sums[kRows][kVectors] = {};
  for (int64_t i = 0; i < k; ++i, operand += columns) {
    Vector<kLanes> row[kVectors];
    for (int v = 0; v < kVectors; ++v) Load<kLanes>(operand + v * kLanes, row[v]);
    for (int r = 0; r < kRows; ++r) {
      const float factor = src.data[r * src.row_stride + i * src.column_stride];
      for (int v = 0; v < kVectors; ++v) sums[r][v] += factor * row[v];
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) Store<kLanes>(sums[r][v], dst + r * columns + v * kLanes);
  }
}

template <int kLanes, int kRows>
PROCESSOR_ALWAYS_INLINE void MultiplyRows(const Factor& src, int64_t k, const float* operand, int64_t columns,
                                          float* dst) {
  int64_t c = 0;
  for (; c + 2 * kLanes <= columns; c += 2 * kLanes) {
    MultiplyStrip<kLanes, kRows, 2>(src, k, operand + c, columns, dst + c);
  }
  if (c < columns) MultiplyStrip<kLanes, kRows, 1>(src, k, operand + c, columns, dst + c);
}

/// `dst = src · operand`; the operand [k, columns] and dst [rows, columns] have whole vectors of columns.
template <int kLanes>
PROCESSOR_ALWAYS_INLINE void Multiply(int64_t rows, Factor src, int64_t k, const float* operand, int64_t columns,
                                      float* dst) {
  for (int64_t left = rows; left > 0;) {
    if (left >= 4) {
      MultiplyRows<kLanes, 4>(src, k, operand, columns, dst);
    } else if (left >= 2) {
      MultiplyRows<kLanes, 2>(src, k, operand, columns, dst);
    } else {
      MultiplyRows<kLanes, 1>(src, k, operand, columns, dst);
    }
    const int64_t done = left >= 4 ? 4 : left >= 2 ? 2 : 1;
    left -= done;
    src.data += done * src.row_stride;
    dst += done * columns;
  }
}

/// The scores of a head. With few queries they have a row for each, otherwise a row for each key: the softmax of a query
/// is then in one lane, and nothing is added across a vector.
struct Scores {
  explicit Scores(const AttentionShape& shape)
      : row_is_query(shape.queries < kFewQueries),
        rows(row_is_query ? shape.queries : shape.keys),
        columns(row_is_query ? shape.keys : shape.queries),
        stride(Padded(columns)) {}

  const bool row_is_query;
  const int64_t rows, columns, stride;
};

PROCESSOR_ALWAYS_INLINE void Mask(const Scores& shape, const HeadAttentionRule& rule, const AttentionMasks& masks,
                                  int64_t head, float* scores) {
  const auto strides = [&shape](const auto& mask) {
    return shape.row_is_query ? std::make_pair(mask.query_stride, mask.key_stride)
                              : std::make_pair(mask.key_stride, mask.query_stride);
  };
  const auto [bias_row, bias_column] = strides(masks.bias);
  const auto [counts_row, counts_column] = strides(masks.condition);
  for (int64_t r = 0; r < shape.rows; ++r, scores += shape.stride) {
    for (int64_t c = 0; c < shape.columns; ++c) scores[c] *= rule.scale;
    if (masks.bias.data != nullptr) {
      const float* bias = masks.bias.data + head * masks.bias.head_stride + r * bias_row;
      for (int64_t c = 0; c < shape.columns; ++c) scores[c] += bias[c * bias_column];
    }
    if (masks.condition.data != nullptr) {
      const bool* counts = masks.condition.data + head * masks.condition.head_stride + r * counts_row;
      for (int64_t c = 0; c < shape.columns; ++c) scores[c] = counts[c * counts_column] ? scores[c] : rule.padding;
    }
  }
}

template <int kLanes>
PROCESSOR_ALWAYS_INLINE void Heads(const AttentionShape& shape, const HeadAttentionRule& rule, const RowMath& math,
                                   const float* query, const float* key, const float* value,
                                   const AttentionMasks& masks, float* scratch, float* dst) {
  const Scores form(shape);
  const int64_t columns = Padded(shape.value_dim);
  float* turned = scratch;                          // [dim, columns of scores]
  float* whole = turned + shape.dim * form.stride;  // [keys, value_dim]
  float* scores = whole + shape.keys * columns;     // [rows, columns]
  float* sums = scores + form.rows * form.stride;   // [queries, value_dim]
  const int64_t key_stride = shape.heads * shape.dim, value_stride = shape.heads * shape.value_dim;
  const float* left = form.row_is_query ? query : key;
  const float* right = form.row_is_query ? key : query;
  // No head writes to the columns that only fill up the last vector of a row, so they stay zero.
  std::fill(turned, scores, 0.0f);
  for (int64_t head = 0; head < shape.heads; ++head) {
    for (int64_t c = 0; c < form.columns; ++c) {
      const float* from = right + c * key_stride + head * shape.dim;
      for (int64_t e = 0; e < shape.dim; ++e) turned[e * form.stride + c] = from[e];
    }
    for (int64_t k = 0; k < shape.keys; ++k) {
      std::copy_n(value + k * value_stride + head * shape.value_dim, shape.value_dim, whole + k * columns);
    }
    Multiply<kLanes>(form.rows, {left + head * shape.dim, key_stride, 1}, shape.dim, turned, form.stride, scores);
    Mask(form, rule, masks, head, scores);
    if (form.row_is_query) {
      math.activate({ActivationKind::kSoftmax}, shape.queries, shape.keys, {scores, form.stride});
      Multiply<kLanes>(shape.queries, {scores, form.stride, 1}, shape.keys, whole, columns, sums);
    } else {
      math.softmax_of_columns(shape.keys, form.stride, {scores, form.stride});
      Multiply<kLanes>(shape.queries, {scores, 1, form.stride}, shape.keys, whole, columns, sums);
    }
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
  const Scores form(shape);
  return (shape.dim + form.rows) * form.stride + (shape.keys + shape.queries) * Padded(shape.value_dim);
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
