// SPDX-License-Identifier: Apache-2.0
// Functions of rows of floats, which a dense tower computes between products on the calling thread.
#ifndef PROCESSOR_KERNELS_ROW_MATH_H_
#define PROCESSOR_KERNELS_ROW_MATH_H_

#include <cstdint>

#include "src/kernels/activation.h"
#include "src/kernels/cpu_features.h"

namespace processor {

/// Rows of a matrix, whose first elements are `stride` elements apart; 0: one row that is used for all.
struct SrcRows {
  const float* data;
  int64_t stride;
};
struct DstRows {
  float* data;
  int64_t stride;
};

/// An activation with its weights [n]. A weight that the activation does not have is null.
struct RowActivation {
  ActivationKind kind = ActivationKind::kNone;
  float alpha = 0;
  const float* weight = nullptr;
  const float* scale = nullptr;
  const float* shift = nullptr;
  bool zero_nan = false;  // relu and relu6: 0 for NaN
};

/// Functions of [rows, n] for one instruction set, with absolute or relative errors below 1e-6. `src` and `dst` may be the
/// same memory.
struct RowMath {
  void (*activate)(const RowActivation& activation, int64_t rows, int64_t n, DstRows x);
  /// dst = src · scale + shift; scale and shift [n].
  void (*affine)(int64_t rows, int64_t n, SrcRows src, const float* scale, const float* shift, DstRows dst);
  /// dst += src
  void (*add)(int64_t rows, int64_t n, SrcRows src, DstRows dst);
  /// dst *= src
  void (*multiply)(int64_t rows, int64_t n, SrcRows src, DstRows dst);
  /// dst += gate · src; gate [rows, 1]
  void (*multiply_add)(int64_t rows, int64_t n, SrcRows gate, SrcRows src, DstRows dst);
  /// dst = (src - mean) / sqrt(variance + epsilon) · gamma + beta; gamma and beta [n].
  void (*layer_norm)(int64_t rows, int64_t n, SrcRows src, const float* gamma, const float* beta, float epsilon,
                     DstRows dst);
  /// Rounds to bfloat16 and back.
  void (*round)(int64_t rows, int64_t n, SrcRows src, DstRows dst);
  /// Rounds to bfloat16; `stride` is that of `dst`.
  void (*to_bfloat16)(int64_t rows, int64_t n, SrcRows src, uint16_t* dst, int64_t stride);
  /// A softmax over the rows of each column; `rows` is at least 1, and `n` a multiple of 16.
  void (*softmax_of_columns)(int64_t rows, int64_t n, DstRows x);
};

/// Returns the functions for `isa`, which the CPU must have.
const RowMath& RowMathFor(Isa isa);

/// Copies [rows, n].
void CopyRows(int64_t rows, int64_t n, SrcRows src, DstRows dst);

}  // namespace processor

#endif  // PROCESSOR_KERNELS_ROW_MATH_H_
