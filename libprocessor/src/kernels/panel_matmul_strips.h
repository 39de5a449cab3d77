// SPDX-License-Identifier: Apache-2.0
// How a product is cut into strips that fit the registers; shared by the forms of MultiplyPanels.
#ifndef PROCESSOR_KERNELS_PANEL_MATMUL_STRIPS_H_
#define PROCESSOR_KERNELS_PANEL_MATMUL_STRIPS_H_

#include <algorithm>
#include <cstdint>
#include <limits>

#include "src/kernels/panel_matmul.h"

namespace processor {

/// Weights are fetched this far ahead: about what memory gives in the time that it takes to answer.
constexpr int64_t kFetchAheadBytes = 4096;

/// Terms that are added up one after another. Sums of so many are added to a total: in one chain of a thousand terms,
/// rounding would cost a digit more than it costs TensorFlow.
constexpr int64_t kSumLength = 128;

/// Some rows times some columns of one panel, whose sums stay in registers.
struct Strip {
  int64_t k;
  const float* src;
  int64_t src_stride;
  const unsigned char* weights;  // the first column of the strip in the first step
  const float* bias;
  float floor;
  float* dst;
  int64_t dst_stride;
  int last_columns;  // of the last vector, 1 to its width
};

using StripFunction = void (*)(const Strip&);

/// What a form of MultiplyPanels is made of: Traits has
///   kLanes                     floats of a vector,
///   kMaxRows                   most rows of a strip,
///   Vectors(rows, left)        how many vectors wide a strip is, if `left` vectors are left of the panel,
///   Find(rows, vectors, type)  the function.
template <typename Traits>
void MultiplyInStrips(const PanelMatmul& m) {
  // With many rows a panel is read again for each block of them, and should not leave the second-level cache.
  constexpr int64_t kChunk = 1024;
  const int64_t blocks = (m.rows + Traits::kMaxRows - 1) / Traits::kMaxRows;
  const int64_t chunk = blocks > 1 && m.shape.k > 2 * kChunk ? kChunk : m.shape.k;
  const int64_t rows_per_step = m.shape.type == PanelType::kFloat32 ? 1 : 2;
  // An empty sum is one chunk too.
  for (int64_t begin = 0; begin == 0 || begin < m.shape.k; begin += std::max<int64_t>(chunk, 1)) {
    const int64_t k = std::min(chunk, m.shape.k - begin);
    const bool last = begin + k == m.shape.k;
    for (int64_t column = 0; column < m.shape.n; column += kPanelColumns) {
      const unsigned char* panel = static_cast<const unsigned char*>(m.panels) +
                                   column / kPanelColumns * m.shape.panel_bytes() + begin / rows_per_step * kStepBytes;
      const int64_t columns = std::min(kPanelColumns, m.shape.n - column);
      const int64_t vectors = (columns + Traits::kLanes - 1) / Traits::kLanes;
      for (int64_t block = 0; block < blocks; ++block) {
        // Blocks of equal size, or one more: a rest of one row would cost almost as much as a full block.
        const int64_t row = m.rows * block / blocks, rows = m.rows * (block + 1) / blocks - row;
        for (int64_t vector = 0; vector < vectors;) {
          const int width = Traits::Vectors(rows, vectors - vector);
          const int64_t lane = vector * Traits::kLanes;
          Strip strip;
          strip.k = k;
          strip.src = m.src + row * m.src_stride + begin;
          strip.src_stride = m.src_stride;
          strip.weights = panel + lane * 4;
          strip.bias = m.bias == nullptr || begin != 0 ? nullptr : m.bias + column + lane;
          strip.floor = last ? m.floor : -std::numeric_limits<float>::infinity();
          strip.dst = m.dst + row * m.dst_stride + column + lane;
          strip.dst_stride = m.dst_stride;
          strip.last_columns =
              static_cast<int>(std::min<int64_t>(Traits::kLanes, columns - lane - (width - 1) * Traits::kLanes));
          Traits::Find(rows, width, m.shape.type)(strip);
          vector += width;
        }
      }
    }
  }
}

void MultiplyPanelsAvx2(const PanelMatmul& matmul);
void MultiplyPanelsAvx512(const PanelMatmul& matmul);

}  // namespace processor

#endif  // PROCESSOR_KERNELS_PANEL_MATMUL_STRIPS_H_
