// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/weight_panels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace processor {

uint16_t FloatToBfloat16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  // Rounding up the bits of a NaN could make an infinity of it.
  if (value != value) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float Bfloat16ToFloat(uint16_t bits) {
  const uint32_t wide = uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

namespace {

void PackInt8(const float* weights, int64_t row_stride, int64_t column_stride, const PanelShape& shape,
              unsigned char* dst) {
  for (int64_t column = 0; column < shape.n; ++column) {
    const float* src = weights + column * column_stride;
    unsigned char* const panel = dst + column / kPanelColumns * shape.panel_bytes();
    const int64_t lane = column % kPanelColumns;
    auto* columns = reinterpret_cast<Int8Columns*>(panel + shape.steps() * kStepBytes);
    float greatest = 0;
    bool finite = true;
    for (int64_t i = 0; i < shape.k; ++i) {
      const float size = std::fabs(src[i * row_stride]);
      finite = finite && std::isfinite(size);
      greatest = std::max(greatest, size);
    }
    columns->scales[lane] = finite ? greatest / 127 : std::numeric_limits<float>::quiet_NaN();
    if (!finite || columns->scales[lane] == 0) continue;
    auto* out = reinterpret_cast<int8_t*>(panel) + 4 * lane;
    int32_t sum = 0;
    for (int64_t i = 0; i < shape.k; ++i) {
      // In double, because the quotient of a tiny scale overflows float.
      const double number = std::nearbyint(static_cast<double>(src[i * row_stride]) / columns->scales[lane]);
      const auto rounded = static_cast<int8_t>(std::clamp(number, -127.0, 127.0));
      out[i / 4 * kStepBytes + i % 4] = rounded;
      sum += rounded;
    }
    columns->sums[lane] = sum;
  }
}

}  // namespace

void PackPanels(const float* weights, bool transposed, const PanelShape& shape, void* dst) {
  auto* bytes = static_cast<unsigned char*>(dst);
  std::memset(bytes, 0, static_cast<size_t>(shape.bytes()));
  const int64_t row_stride = transposed ? 1 : shape.n, column_stride = transposed ? shape.k : 1;
  if (shape.type == PanelType::kInt8) return PackInt8(weights, row_stride, column_stride, shape, bytes);
  for (int64_t panel = 0; panel < shape.panels(); ++panel) {
    const int64_t begin = panel * kPanelColumns, columns = std::min(kPanelColumns, shape.n - begin);
    unsigned char* const start = bytes + panel * shape.panel_bytes();
    for (int64_t row = 0; row < shape.k; ++row) {
      const float* src = weights + row * row_stride + begin * column_stride;
      if (shape.type == PanelType::kFloat32) {
        float* out = reinterpret_cast<float*>(start + row * kStepBytes);
        for (int64_t j = 0; j < columns; ++j) out[j] = src[j * column_stride];
      } else {
        uint16_t* out = reinterpret_cast<uint16_t*>(start + row / 2 * kStepBytes) + row % 2;
        for (int64_t j = 0; j < columns; ++j) out[2 * j] = FloatToBfloat16(src[j * column_stride]);
      }
    }
  }
}

}  // namespace processor
