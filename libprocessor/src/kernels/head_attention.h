// SPDX-License-Identifier: Apache-2.0
// Attention of several heads, as in transformers: each position of a sequence takes a mean of the values of another,
// weighed by a softmax over products with its keys.
#ifndef PROCESSOR_KERNELS_HEAD_ATTENTION_H_
#define PROCESSOR_KERNELS_HEAD_ATTENTION_H_

#include <cstdint>
#include <vector>

#include "src/kernels/cpu_features.h"

namespace processor {

/// The sizes of one sequence; a position of `queries` has `heads * dim` elements side by side, of `values` `heads *
/// value_dim`.
struct AttentionShape {
  int64_t heads = 1;
  int64_t queries = 0;
  int64_t keys = 0;
  int64_t dim = 0;
  int64_t value_dim = 0;
};

/// A tensor that counts for [heads, queries, keys]; 0 where a dimension has one element for all.
template <typename T>
struct Broadcast {
  const T* data = nullptr;
  int64_t head_stride = 0;
  int64_t query_stride = 0;
  int64_t key_stride = 0;
};

/// What is done with the products of one sequence before and after the softmax; null where it is not.
struct AttentionMasks {
  /// Added to the products.
  Broadcast<float> bias;
  /// Where it is false, the product is `padding` instead.
  Broadcast<bool> condition;
  /// [queries]: what the weights of a position are multiplied with after the softmax.
  const float* gate = nullptr;
};

struct HeadAttentionRule {
  float scale = 1;
  float padding = 0;
};

/// Floats of memory that `AttendHeads` needs.
int64_t AttentionScratch(const AttentionShape& shape);

/// `dst[q, h] = gate[q] · Σ_k softmax_k(select(condition, scale · query[q, h] · key[k, h] + bias, padding)) · value[k, h]`
///
/// \param query [queries, heads, dim]
/// \param key [keys, heads, dim]
/// \param value [keys, heads, value_dim]
/// \param scratch `AttentionScratch(shape)` floats
/// \param dst [queries, heads, value_dim]
void AttendHeads(const AttentionShape& shape, const HeadAttentionRule& rule, const float* query, const float* key,
                 const float* value, const AttentionMasks& masks, float* scratch, float* dst, Isa isa = ThisCpu().isa);

}  // namespace processor

#endif  // PROCESSOR_KERNELS_HEAD_ATTENTION_H_
