// SPDX-License-Identifier: Apache-2.0
// Computes products with packed weights on the calling thread, without allocating memory.
#ifndef PROCESSOR_KERNELS_PANEL_MATMUL_H_
#define PROCESSOR_KERNELS_PANEL_MATMUL_H_

#include <cstdint>

#include "src/kernels/cpu_features.h"
#include "src/kernels/weight_panels.h"

namespace processor {

/// A product dst = max(floor, src · W + bias) or max(floor, src · W + dst). A NaN stays a NaN unless `zero_nan`.
///
/// For a few rows, the weights are read once as one stream, and the memory limits the speed: bfloat16 weights, which are
/// widened in registers, take half the time of float. Sums are float.
struct PanelMatmul {
  int64_t rows = 0;
  const float* src = nullptr;  // [rows, k]
  int64_t src_stride = 0;      // elements from row to row
  PanelShape shape;
  const void* panels = nullptr;
  const float* bias = nullptr;  // [n]; null: the sums start with dst
  float floor = 0;              // 0 for relu, minus infinity for no activation
  bool zero_nan = false;        // whether a NaN becomes the floor
  float* dst = nullptr;         // [rows, n]
  int64_t dst_stride = 0;
};

/// Computes a product with the instructions of `isa`, which the CPU must have.
void MultiplyPanels(Isa isa, const PanelMatmul& matmul);

}  // namespace processor

#endif  // PROCESSOR_KERNELS_PANEL_MATMUL_H_
