// SPDX-License-Identifier: Apache-2.0
// The memory layout of the weights of a dense layer. Any thread may call these functions.
#ifndef PROCESSOR_KERNELS_WEIGHT_PANELS_H_
#define PROCESSOR_KERNELS_WEIGHT_PANELS_H_

#include <cstddef>
#include <cstdint>

namespace processor {

enum class PanelType { kFloat32, kBfloat16 };

/// The columns of a panel. The last panel is padded with zeros.
constexpr int64_t kPanelColumns = 64;
/// The bytes of a step of a panel: one row of 64 floats, or two rows of bfloat16 whose elements alternate (row 0 column 0,
/// row 1 column 0, row 0 column 1, ...), so that a vector of 32-bit lanes holds two rows of the same columns.
constexpr int64_t kStepBytes = 256;

/// A matrix [k, n] as consecutive panels of 64 columns, each a stream of steps that is read from front to back. oneDNN calls
/// this layout BA16a64b, or BA16a64b2a for bfloat16.
struct PanelShape {
  int64_t k = 0;
  int64_t n = 0;
  PanelType type = PanelType::kFloat32;

  int64_t panels() const { return (n + kPanelColumns - 1) / kPanelColumns; }
  int64_t steps() const { return type == PanelType::kFloat32 ? (k + 15) / 16 * 16 : (k + 31) / 32 * 16; }
  int64_t panel_bytes() const { return steps() * kStepBytes; }
  int64_t bytes() const { return panels() * panel_bytes(); }
};

/// Rounds to the nearest bfloat16, ties to even, as TensorFlow and oneDNN do.
uint16_t FloatToBfloat16(float value);
float Bfloat16ToFloat(uint16_t bits);

/// Writes the weights [k, n], or [n, k] if `transposed`, to `dst` [shape.bytes()]; pads with zeros.
void PackPanels(const float* weights, bool transposed, const PanelShape& shape, void* dst);

}  // namespace processor

#endif  // PROCESSOR_KERNELS_WEIGHT_PANELS_H_
