// SPDX-License-Identifier: Apache-2.0
// Cuts a product into strips that fit the registers; the forms of MultiplyPanels() share it.
#ifndef PROCESSOR_KERNELS_PANEL_MATMUL_STRIPS_H_
#define PROCESSOR_KERNELS_PANEL_MATMUL_STRIPS_H_

#include <algorithm>
#include <cstdint>
#include <limits>

#include "src/kernels/panel_matmul.h"

namespace processor {

/// The distance by which weights are prefetched: about the bytes that the memory delivers during its latency.
constexpr int64_t kFetchAheadBytes = 4096;

/// The number of terms that are summed in one chain; then the sum is added to dst. One chain of a thousand terms would lose
/// one more digit by rounding than TensorFlow does.
constexpr int64_t kSumLength = 128;

/// Some rows times some columns of one panel; the sums stay in registers.
struct Strip {
  int64_t k;
  const float* src;
  int64_t src_stride;
  const unsigned char* weights;  // the first column of the strip in the first step
  const unsigned char* fetch;    // what is prefetched meanwhile, and its step in bytes for two rows of weights
  int64_t fetch_step;
  const float* bias;
  float floor;
  bool zero_nan;
  float* dst;
  int64_t dst_stride;
  int last_columns;  // of the last vector, 1 to its width
};

using StripFunction = void (*)(const Strip&);

/// A form of MultiplyPanels(). Traits has
///   kLanes                     floats of a vector,
///   kMaxRows                   most rows of a strip,
///   Vectors(rows, left)        how many vectors wide a strip is, if `left` vectors are left of the panel,
///   Find(rows, vectors, type)  the function; it also takes fewer rows than Vectors was asked for.
///
/// A panel that is read only once is prefetched shortly before its use. While a panel is read several times, the next one
/// is prefetched at an even pace, because otherwise its first reading would wait for memory.
template <typename Traits>
void MultiplyInStrips(const PanelMatmul& m) {
  const int64_t blocks = (m.rows + Traits::kMaxRows - 1) / Traits::kMaxRows;
  if (blocks == 0) return;
  const int64_t most_rows = (m.rows + blocks - 1) / blocks;
  // One block reads its weights as a stream. Two blocks share a part that stays in the first-level cache. More blocks
  // compute for so long that the second level is fast enough.
  const int64_t chunk = blocks == 1 ? std::max<int64_t>(m.shape.k, 1) : blocks == 2 ? kSumLength : 8 * kSumLength;
  const int64_t rows_per_step = m.shape.type == PanelType::kFloat32 ? 1 : 2;
  const int64_t pair_bytes = 2 * kStepBytes / rows_per_step;
  for (int64_t column = 0; column < m.shape.n; column += kPanelColumns) {
    const unsigned char* panel =
        static_cast<const unsigned char*>(m.panels) + column / kPanelColumns * m.shape.panel_bytes();
    const int64_t columns = std::min(kPanelColumns, m.shape.n - column);
    const int64_t vectors = (columns + Traits::kLanes - 1) / Traits::kLanes;
    const int64_t first_width = Traits::Vectors(most_rows, vectors);
    const int64_t readings = blocks * ((vectors + first_width - 1) / first_width);
    const int64_t pace = readings >= 8 ? 8 : readings >= 4 ? 4 : readings >= 2 ? 2 : 1;
    int64_t fetched = 0;
    for (int64_t vector = 0; vector < vectors;) {
      const int width = Traits::Vectors(most_rows, vectors - vector);
      const int64_t lane = vector * Traits::kLanes;
      Strip strip;
      strip.src_stride = m.src_stride;
      strip.fetch_step = pair_bytes / pace;
      strip.dst_stride = m.dst_stride;
      strip.last_columns =
          static_cast<int>(std::min<int64_t>(Traits::kLanes, columns - lane - (width - 1) * Traits::kLanes));
      // A sum without terms also has one chunk.
      for (int64_t begin = 0; begin == 0 || begin < m.shape.k; begin += chunk) {
        strip.k = std::min(chunk, m.shape.k - begin);
        strip.weights = panel + begin / rows_per_step * kStepBytes + lane * 4;
        strip.bias = m.bias == nullptr || begin != 0 ? nullptr : m.bias + column + lane;
        const bool complete = begin + strip.k == m.shape.k;
        strip.floor = complete ? m.floor : -std::numeric_limits<float>::infinity();
        strip.zero_nan = complete && m.zero_nan;
        for (int64_t block = 0; block < blocks; ++block) {
          // The sizes of blocks differ by one row at most: a last block of one row would cost almost as much as a full one.
          const int64_t row = m.rows * block / blocks, rows = m.rows * (block + 1) / blocks - row;
          strip.src = m.src + row * m.src_stride + begin;
          strip.dst = m.dst + row * m.dst_stride + column + lane;
          strip.fetch = pace == 1 ? strip.weights + kFetchAheadBytes : panel + m.shape.panel_bytes() + fetched;
          Traits::Find(rows, width, m.shape.type)(strip);
          // Beyond the end, lines that are in the cache already are prefetched again.
          fetched += strip.k / 2 * strip.fetch_step;
          if (fetched >= m.shape.panel_bytes()) fetched = 0;
        }
      }
      vector += width;
    }
  }
}

void MultiplyPanelsAvx2(const PanelMatmul& matmul);
void MultiplyPanelsAvx512(const PanelMatmul& matmul);

}  // namespace processor

#endif  // PROCESSOR_KERNELS_PANEL_MATMUL_STRIPS_H_
