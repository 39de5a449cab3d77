// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/panel_matmul.h"

#include <algorithm>
#include <cstring>

#include "src/kernels/panel_matmul_strips.h"

namespace processor {
namespace {

struct PlainPanels {
  static constexpr int kLanes = kPanelColumns;
  static constexpr int kMaxRows = 1;
  static int Vectors(int64_t, int64_t) { return 1; }
  static StripFunction Find(int64_t, int, PanelType type) {
    return type == PanelType::kFloat32 ? Run<PanelType::kFloat32> : Run<PanelType::kBfloat16>;
  }

  template <PanelType kType>
  static void Run(const Strip& s) {
    float totals[kPanelColumns] = {};
    std::copy_n(s.bias != nullptr ? s.bias : s.dst, s.last_columns, totals);
    for (int64_t begin = 0; begin < s.k; begin += kSumLength) {
      float sums[kPanelColumns] = {};
      for (int64_t i = begin; i < std::min(begin + kSumLength, s.k); ++i) {
        const float x = s.src[i];
        if constexpr (kType == PanelType::kFloat32) {
          const auto* weights = reinterpret_cast<const float*>(s.weights + i * kStepBytes);
          for (int64_t j = 0; j < kPanelColumns; ++j) sums[j] += x * weights[j];
        } else {
          const auto* weights = reinterpret_cast<const uint16_t*>(s.weights + i / 2 * kStepBytes) + i % 2;
          for (int64_t j = 0; j < kPanelColumns; ++j) sums[j] += x * Bfloat16ToFloat(weights[2 * j]);
        }
      }
      for (int64_t j = 0; j < kPanelColumns; ++j) totals[j] += sums[j];
    }
    for (int j = 0; j < s.last_columns; ++j) {
      const bool below = s.zero_nan ? !(totals[j] > s.floor) : totals[j] < s.floor;
      s.dst[j] = below ? s.floor : totals[j];
    }
  }
};

}  // namespace

void MultiplyPanels(Isa isa, const PanelMatmul& matmul) {
  switch (isa) {
    case Isa::kAvx512:
      return MultiplyPanelsAvx512(matmul);
    case Isa::kAvx2:
      return MultiplyPanelsAvx2(matmul);
    case Isa::kPlain:
      return MultiplyInStrips<PlainPanels>(matmul);
  }
}

}  // namespace processor
