// SPDX-License-Identifier: Apache-2.0
// Computes products of rows of bytes with weights of int8 on the calling thread, without allocating memory. The CPU must
// have the instructions (HasInt8()).
//
// Sums are integers, so they are exact: a row has the same result in any number of rows.
#ifndef PROCESSOR_KERNELS_INT8_MATMUL_H_
#define PROCESSOR_KERNELS_INT8_MATMUL_H_

#include <cstdint>

#include "src/kernels/row_math.h"
#include "src/kernels/weight_panels.h"

namespace processor {

/// How the bytes of a row are read: byte b is the number scale · (b - zero).
struct ByteScale {
  float scale;
  int32_t zero;
};

/// Rows [rows, n] of bytes, and how they are read.
struct ByteRows {
  uint8_t* data;
  int64_t stride;  // bytes from row to row
  ByteScale* scales;

  /// Returns the floats of memory for each row, a multiple of 16.
  static int64_t Floats(int64_t n) { return (Stride(n) / 4 + 2 + 15) / 16 * 16; }
  /// Places rows in memory of rows · Floats(n) floats, aligned to 64 bytes.
  static ByteRows In(float* memory, int64_t rows, int64_t n) {
    auto* data = reinterpret_cast<uint8_t*>(memory);
    return {data, Stride(n), reinterpret_cast<ByteScale*>(data + rows * Stride(n))};
  }

 private:
  // An odd number of cache lines: at a power of two all rows would fall into the same sets of the cache.
  static int64_t Stride(int64_t n) { return ((n + 63) / 64 | 1) * 64; }
};

/// Rounds each row of numbers [rows, n] to 256 equal steps between its least and its greatest number, one of which is 0.
/// A row with a NaN or an infinity gets the scale NaN.
void RoundToBytes(int64_t rows, int64_t n, SrcRows src, const ByteRows& dst);

/// A product dst = max(floor, src · W + bias) or max(floor, src · W + dst), where src are the numbers that
/// RoundToBytes() wrote. A NaN stays a NaN unless `zero_nan`.
struct Int8Matmul {
  int64_t rows = 0;
  ByteRows src;  // [rows, k]
  PanelShape shape;
  const void* panels = nullptr;
  const float* bias = nullptr;  // [n]; null: the sums are added to dst
  float floor = 0;              // 0 for relu, minus infinity for no activation
  bool zero_nan = false;        // whether a NaN becomes the floor
  float* dst = nullptr;         // [rows, n]
  int64_t dst_stride = 0;
};

/// Computes a product.
void MultiplyInt8(const Int8Matmul& matmul);

}  // namespace processor

#endif  // PROCESSOR_KERNELS_INT8_MATMUL_H_
