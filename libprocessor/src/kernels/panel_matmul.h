// SPDX-License-Identifier: Apache-2.0
// Products with packed weights, on one thread, without memory of their own.
#ifndef PROCESSOR_KERNELS_PANEL_MATMUL_H_
#define PROCESSOR_KERNELS_PANEL_MATMUL_H_

#include <cstdint>

#include "src/kernels/cpu_features.h"
#include "src/kernels/weight_panels.h"

namespace processor {

/// dst = max(floor, src · W + bias), or max(floor, src · W + dst). A NaN stays one unless `zero_nan`.
///
/// For a few rows this reads the weights once, as one stream, and is as fast as they come: with bfloat16, which is
/// widened in registers, half the time of float. Sums are float.
struct PanelMatmul {
  int64_t rows = 0;
  const float* src = nullptr;  // [rows, k]
  int64_t src_stride = 0;      // elements from row to row
  PanelShape shape;
  const void* panels = nullptr;
  const float* bias = nullptr;  // [n]; null: the sums start with what is in dst
  float floor = 0;              // 0 for relu, minus infinity for nothing
  bool zero_nan = false;        // the floor for NaN
  float* dst = nullptr;         // [rows, n]
  int64_t dst_stride = 0;
};

/// Computes it with the instructions of `isa`, which the CPU must have.
void MultiplyPanels(Isa isa, const PanelMatmul& matmul);

}  // namespace processor

#endif  // PROCESSOR_KERNELS_PANEL_MATMUL_H_
