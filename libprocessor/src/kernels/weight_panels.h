// SPDX-License-Identifier: Apache-2.0
// The memory layout of the weights of a dense layer. Any thread may call these functions.
#ifndef PROCESSOR_KERNELS_WEIGHT_PANELS_H_
#define PROCESSOR_KERNELS_WEIGHT_PANELS_H_

#include <cstddef>
#include <cstdint>

namespace processor {

enum class PanelType { kFloat32, kBfloat16, kInt8 };

/// The columns of a panel. The last panel is padded with zeros.
constexpr int64_t kPanelColumns = 64;
/// The bytes of a step of a panel: one row of 64 floats, or two rows of bfloat16 whose elements alternate (row 0 column 0,
/// row 1 column 0, row 0 column 1, ...), so that a vector of 32-bit lanes holds two rows of the same columns. Four rows of
/// int8 alternate in the same way.
constexpr int64_t kStepBytes = 256;

/// What stands behind the steps of a panel of int8: by what its sums are multiplied, and the sums of its columns.
struct Int8Columns {
  float scales[kPanelColumns];
  int32_t sums[kPanelColumns];
};

/// The longest sum of products of a number up to 255 with one up to 127 that fits 32 bits.
constexpr int64_t kMostInt8Terms = INT32_MAX / (255 * 127);

/// A matrix [k, n] as consecutive panels of 64 columns, each a stream of steps that is read from front to back. oneDNN calls
/// this layout BA16a64b, or BA16a64b2a for bfloat16.
struct PanelShape {
  int64_t k = 0;
  int64_t n = 0;
  PanelType type = PanelType::kFloat32;

  int64_t panels() const { return (n + kPanelColumns - 1) / kPanelColumns; }
  int64_t steps() const {
    switch (type) {
      case PanelType::kInt8:
        return (k + 3) / 4;
      case PanelType::kBfloat16:
        return (k + 31) / 32 * 16;
      case PanelType::kFloat32:
        break;
    }
    return (k + 15) / 16 * 16;
  }
  int64_t panel_bytes() const {
    return steps() * kStepBytes + (type == PanelType::kInt8 ? static_cast<int64_t>(sizeof(Int8Columns)) : 0);
  }
  int64_t bytes() const { return panels() * panel_bytes(); }
};

/// Rounds to the nearest bfloat16, ties to even, as TensorFlow and oneDNN do.
uint16_t FloatToBfloat16(float value);
float Bfloat16ToFloat(uint16_t bits);

/// Writes the weights [k, n], or [n, k] if `transposed`, to `dst` [shape.bytes()]; pads with zeros. For int8, the greatest
/// number of each column becomes 127; a column with a NaN or an infinity gets the scale NaN.
void PackPanels(const float* weights, bool transposed, const PanelShape& shape, void* dst);

}  // namespace processor

#endif  // PROCESSOR_KERNELS_WEIGHT_PANELS_H_
