// SPDX-License-Identifier: Apache-2.0
// Attention with several heads, as in transformers: each position of a sequence gets a mean of the values of another
// sequence, weighted by a softmax over the products with its keys. Any thread may call it.
#ifndef PROCESSOR_KERNELS_HEAD_ATTENTION_H_
#define PROCESSOR_KERNELS_HEAD_ATTENTION_H_

#include <cstdint>
#include <vector>

#include "src/kernels/cpu_features.h"

namespace processor {

/// The sizes of one sequence. A position of the queries has `heads * dim` elements side by side, one of the values has
/// `heads * value_dim`.
struct AttentionShape {
  int64_t heads = 1;
  int64_t queries = 0;
  int64_t keys = 0;
  int64_t dim = 0;
  int64_t value_dim = 0;
};

/// A tensor that is broadcast to [heads, queries, keys]. A stride is 0 if its dimension has one element for all.
template <typename T>
struct Broadcast {
  const T* data = nullptr;
  int64_t head_stride = 0;
  int64_t query_stride = 0;
  int64_t key_stride = 0;
};

/// What is done with the products of one sequence before and after the softmax; null pointers are skipped.
struct AttentionMasks {
  /// Added to the products.
  Broadcast<float> bias;
  /// Products for which it is false are replaced by `padding`.
  Broadcast<bool> condition;
  /// [queries]: factors of the weights of a position after the softmax.
  const float* gate = nullptr;
};

struct HeadAttentionRule {
  float scale = 1;
  float padding = 0;
};

/// Returns the floats of scratch memory that AttendHeads() needs.
int64_t AttentionScratch(const AttentionShape& shape);

/// Computes `dst[q, h] = gate[q] · Σ_k softmax_k(select(condition, scale · query[q, h] · key[k, h] + bias, padding)) · value[k, h]`
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
