// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/panel_matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace processor {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

class Random {
 public:
  std::vector<float> Floats(size_t count, float scale = 1) {
    std::vector<float> values(count);
    for (float& value : values) value = scale * uniform_(generator_);
    return values;
  }

 private:
  std::mt19937 generator_{7};
  std::uniform_real_distribution<float> uniform_{-1, 1};
};

struct Sizes {
  int64_t rows, k, n;
};

// Compares one product with a plain one in double; strides are wider than the rows, and what is between must stay.
void CheckPanels(Isa isa, PanelType type, const Sizes& sizes, bool accumulate, float floor, bool transposed,
                 Random* random) {
  SCOPED_TRACE(std::string(IsaName(isa)) + (type == PanelType::kFloat32 ? " fp32 " : " bf16 ") +
               std::to_string(sizes.rows) + "x" + std::to_string(sizes.k) + "x" + std::to_string(sizes.n));
  const int64_t src_stride = sizes.k + 3, dst_stride = sizes.n + 5;
  // As trained weights are: sums do not grow with their length.
  const float scale = 1 / std::sqrt(static_cast<float>(std::max<int64_t>(sizes.k, 1)));
  const std::vector<float> weights = random->Floats(sizes.k * sizes.n, scale), bias = random->Floats(sizes.n);
  // Exactly as long as it must be: AddressSanitizer sees what reads beyond.
  const std::vector<float> src = random->Floats(sizes.rows == 0 ? 0 : (sizes.rows - 1) * src_stride + sizes.k);
  std::vector<float> dst = random->Floats(sizes.rows == 0 ? 0 : (sizes.rows - 1) * dst_stride + sizes.n);
  const std::vector<float> before = dst;

  PanelMatmul matmul;
  matmul.rows = sizes.rows;
  matmul.src = src.data();
  matmul.src_stride = src_stride;
  matmul.shape = PanelShape{sizes.k, sizes.n, type};
  std::vector<unsigned char> panels(matmul.shape.bytes());
  PackPanels(weights.data(), transposed, matmul.shape, panels.data());
  matmul.panels = panels.data();
  matmul.bias = accumulate ? nullptr : bias.data();
  matmul.floor = floor;
  matmul.dst = dst.data();
  matmul.dst_stride = dst_stride;
  MultiplyPanels(isa, matmul);

  for (int64_t r = 0; r < sizes.rows; ++r) {
    for (int64_t j = 0; j < sizes.n; ++j) {
      double sum = accumulate ? before[r * dst_stride + j] : bias[j];
      for (int64_t i = 0; i < sizes.k; ++i) {
        float weight = transposed ? weights[j * sizes.k + i] : weights[i * sizes.n + j];
        if (type == PanelType::kBfloat16) weight = Bfloat16ToFloat(FloatToBfloat16(weight));
        sum += static_cast<double>(src[r * src_stride + i]) * weight;
      }
      const double expected = std::max<double>(sum, floor);
      ASSERT_NEAR(dst[r * dst_stride + j], expected, 1e-5 + 1e-5 * std::fabs(expected)) << r << ", " << j;
    }
    for (int64_t j = sizes.n; j < dst_stride && r + 1 < sizes.rows; ++j) {
      ASSERT_EQ(dst[r * dst_stride + j], before[r * dst_stride + j]) << "written beside " << r;
    }
  }
}

TEST(PanelMatmul, EqualsPlainProducts) {
  Random random;
  for (Isa isa : SupportedIsas()) {
    for (PanelType type : {PanelType::kFloat32, PanelType::kBfloat16}) {
      for (int64_t rows : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 14, 15, 16, 29, 31, 64, 127, 128, 129}) {
        for (int64_t k : {1, 2, 3, 13, 64, 129}) {
          for (int64_t n : {1, 2, 3, 13, 16, 17, 33, 49, 64, 65, 129}) {
            if (rows > 16 && k * n > 3000 && (rows + k + n) % 3 != 0) continue;
            CheckPanels(isa, type, {rows, k, n}, rows % 2 != 0, n % 2 == 0 ? 0 : kNothing, k % 3 == 0, &random);
          }
        }
      }
      for (int64_t rows : {1, 7, 33}) CheckPanels(isa, type, {rows, 429, 429}, false, 0, false, &random);
    }
  }
}

TEST(PanelMatmul, AddsUpInChunks) {
  Random random;
  for (Isa isa : SupportedIsas()) {
    for (PanelType type : {PanelType::kFloat32, PanelType::kBfloat16}) {
      // Longer than two chunks, for two blocks of rows and for more, and an odd rest.
      CheckPanels(isa, type, {17, 2077, 19}, false, 0, false, &random);
      CheckPanels(isa, type, {17, 2077, 19}, true, kNothing, true, &random);
      CheckPanels(isa, type, {60, 2077, 19}, false, kNothing, false, &random);
    }
  }
}

TEST(PanelMatmul, EmptySumEqualsBias) {
  Random random;
  for (Isa isa : SupportedIsas()) {
    CheckPanels(isa, PanelType::kFloat32, {3, 0, 5}, false, 0, false, &random);
    CheckPanels(isa, PanelType::kBfloat16, {3, 0, 5}, true, kNothing, false, &random);
  }
}

TEST(PanelMatmul, KeepsNan) {
  for (Isa isa : SupportedIsas()) {
    const float nan = std::numeric_limits<float>::quiet_NaN(), weight = 1, bias = 0;
    PanelMatmul matmul;
    matmul.rows = 1;
    matmul.src = &nan;
    matmul.shape = PanelShape{1, 1, PanelType::kFloat32};
    std::vector<unsigned char> panels(matmul.shape.bytes());
    PackPanels(&weight, false, matmul.shape, panels.data());
    matmul.panels = panels.data();
    matmul.bias = &bias;
    float dst = 0;
    matmul.dst = &dst;
    MultiplyPanels(isa, matmul);
    EXPECT_TRUE(std::isnan(dst)) << IsaName(isa);
  }
}

TEST(WeightPanels, RoundsToNearestEven) {
  EXPECT_EQ(FloatToBfloat16(1.0f), 0x3f80);
  EXPECT_EQ(FloatToBfloat16(1.00390625f), 0x3f80);   // half way, to even below
  EXPECT_EQ(FloatToBfloat16(1.01171875f), 0x3f82);   // half way, to even above
  EXPECT_EQ(FloatToBfloat16(1.003906369f), 0x3f81);  // just above half way
  EXPECT_EQ(FloatToBfloat16(std::numeric_limits<float>::infinity()), 0x7f80);
  EXPECT_TRUE(std::isnan(Bfloat16ToFloat(FloatToBfloat16(std::nanf("")))));
}

}  // namespace
}  // namespace processor
