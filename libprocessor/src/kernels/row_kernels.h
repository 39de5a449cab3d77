// SPDX-License-Identifier: Apache-2.0
// Converts rows of an embedding table to floats, and copies, adds, multiplies or pools them. Any thread may call the kernels.
//
// Every form computes the same bits: each product and each sum is rounded to fp32, in the order of the values.
#ifndef PROCESSOR_KERNELS_ROW_KERNELS_H_
#define PROCESSOR_KERNELS_ROW_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "src/kernels/cpu_features.h"

namespace processor {

enum class RowType : uint32_t;
constexpr int kRowTypes = 5;

/// The rows of a table, which owns them; docs/table_format.md describes their elements.
struct RowSource {
  const uint8_t* rows;
  uint32_t stride;  // bytes
  uint32_t dim;
};

/// Row numbers from here on have a special meaning. These kernels read a row of zeros for them.
constexpr uint32_t kFirstSpecialRow = 0xfffffff0u;
/// The row number of an ignored value: zeros if rows lie side by side, skipped if they are pooled.
constexpr uint32_t kNoRow = 0xfffffffdu;

/// Computes dst[i * dst_stride + e] = element e of row numbers[i], or += it, or *= it. dst_stride is in floats.
using CopyRowsFn = void (*)(const RowSource& source, const uint32_t* numbers, size_t n, float* dst, size_t dst_stride);

/// Computes dst[e] = scale · Σ factors[i] · element e of row numbers[i], or += it. Null factors mean 1.
using PoolRowsFn = void (*)(const RowSource& source, const uint32_t* numbers, const float* factors, size_t n,
                            float scale, float* dst);

struct RowKernels {
  CopyRowsFn copy[kRowTypes];  // by RowType
  CopyRowsFn add[kRowTypes];
  CopyRowsFn multiply[kRowTypes];
  PoolRowsFn pool[kRowTypes];
  PoolRowsFn add_pooled[kRowTypes];
};

/// Returns the kernels for an instruction set that this CPU has.
const RowKernels& RowKernelsFor(Isa isa);

/// Returns the fastest kernels for this CPU.
const RowKernels& BestRowKernels();

}  // namespace processor

#endif  // PROCESSOR_KERNELS_ROW_KERNELS_H_
