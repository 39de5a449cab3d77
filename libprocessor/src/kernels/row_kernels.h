// SPDX-License-Identifier: Apache-2.0
// Rows of an embedding table into rows of floats: copied, added, or pooled.
//
// Every variant gives the same bits: products and sums are rounded to fp32 each, and added in the order of the values.
#ifndef PROCESSOR_KERNELS_ROW_KERNELS_H_
#define PROCESSOR_KERNELS_ROW_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "src/kernels/cpu_features.h"

namespace processor {

enum class RowType : uint32_t;
constexpr int kRowTypes = 5;

/// The rows of a table. Elements are as docs/table_format.md says.
struct RowSource {
  const uint8_t* rows;
  uint32_t stride;  // bytes
  uint32_t dim;
};

/// From here on the number of a row stands for something else. To these kernels: a row of zeros.
constexpr uint32_t kFirstSpecialRow = 0xfffffff0u;
/// A value that counts as none: zeros where rows lie side by side, and passed over where they are pooled.
constexpr uint32_t kNoRow = 0xfffffffdu;

/// dst[i * dst_stride + e] = element e of row numbers[i], or += that. dst_stride is in floats.
using CopyRowsFn = void (*)(const RowSource& source, const uint32_t* numbers, size_t n, float* dst, size_t dst_stride);

/// dst[e] = scale · Σ factors[i] · element e of row numbers[i], or += that. Without factors they are 1.
using PoolRowsFn = void (*)(const RowSource& source, const uint32_t* numbers, const float* factors, size_t n,
                            float scale, float* dst);

struct RowKernels {
  CopyRowsFn copy[kRowTypes];  // by RowType
  CopyRowsFn add[kRowTypes];
  PoolRowsFn pool[kRowTypes];
  PoolRowsFn add_pooled[kRowTypes];
};

/// The kernels of an instruction set that this CPU has.
const RowKernels& RowKernelsFor(Isa isa);

/// The fastest that this CPU has.
const RowKernels& BestRowKernels();

}  // namespace processor

#endif  // PROCESSOR_KERNELS_ROW_KERNELS_H_
