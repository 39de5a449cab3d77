// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/onednn_matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "naive.h"
#include "src/kernels/cpu_features.h"
#include "src/kernels/row_math.h"

namespace processor {
namespace {

float Rounded(float value) { return Bfloat16ToFloat(FloatToBfloat16(value)); }

struct Variant {
  PanelType type = PanelType::kFloat32;
  bool transposed = false;
  bool with_panels = true;
  bool accumulate = false;
  bool activate = true;
  bool dst_bfloat16 = false;
  bool with_bias = true;
};

// Compares with sums in double and the activation of RowMath, which is tested by itself.
void CheckVariant(int64_t rows, int64_t k, int64_t n, const Activation& activation, const Variant& variant) {
  SCOPED_TRACE(std::to_string(rows) + "x" + std::to_string(k) + "x" + std::to_string(n) + " activation " +
               std::to_string(static_cast<int>(activation.kind)));
  const bool half = variant.type == PanelType::kBfloat16;
  const float scale = 1 / std::sqrt(static_cast<float>(k));
  std::vector<float> weights = RandomFloats(k * n, scale, 1), bias = RandomFloats(n, 1, 2);
  const int64_t src_stride = k + 6, dst_stride = n + 2;
  std::vector<float> src = RandomFloats(rows * src_stride, 2, 3), dst = RandomFloats(rows * dst_stride, 1, 4);
  std::vector<uint16_t> src_half, dst_half(dst.size());
  for (float value : src) src_half.push_back(FloatToBfloat16(value));

  std::vector<float> expected(rows * n);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = (variant.with_bias ? bias[j] : 0.0f) + (variant.accumulate ? dst[r * dst_stride + j] : 0.0f);
      for (int64_t i = 0; i < k; ++i) {
        const float weight = weights[variant.transposed ? j * k + i : i * n + j], x = src[r * src_stride + i];
        sum += half ? static_cast<double>(Rounded(x)) * Rounded(weight) : static_cast<double>(x) * weight;
      }
      expected[r * n + j] = static_cast<float>(sum);
    }
  }
  if (variant.activate) {
    RowMathFor(Isa::kPlain).activate({activation.kind, activation.alpha}, rows, n, {expected.data(), n});
  }

  const PanelShape shape{k, n, variant.type};
  std::vector<unsigned char> panels(shape.bytes());
  PackPanels(weights.data(), variant.transposed, shape, panels.data());
  std::unique_ptr<OnednnMatmul> matmul;
  const absl::Status made = OnednnMatmul::Create(weights.data(), variant.transposed, shape,
                                                 variant.with_panels ? panels.data() : nullptr, activation, &matmul);
  ASSERT_TRUE(made.ok()) << made;
  OnednnMatmul::Call call;
  call.rows = rows;
  call.src = half ? static_cast<const void*>(src_half.data()) : src.data();
  call.src_stride = src_stride;
  call.bias = variant.with_bias ? bias.data() : nullptr;
  call.accumulate = variant.accumulate;
  call.activate = variant.activate;
  call.dst = variant.dst_bfloat16 ? static_cast<void*>(dst_half.data()) : dst.data();
  call.dst_stride = dst_stride;
  call.dst_bfloat16 = variant.dst_bfloat16;
  const std::vector<float> before = dst;
  for (int run = 0; run < 2; ++run) {
    dst = before;
    const absl::Status ran = matmul->Run(call);
    ASSERT_TRUE(ran.ok()) << ran;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t j = 0; j < n; ++j) {
        const int64_t at = r * dst_stride + j;
        const float got = variant.dst_bfloat16 ? Bfloat16ToFloat(dst_half[at]) : dst[at];
        const double tolerance = variant.dst_bfloat16 ? 0.005 : 1e-5;
        ASSERT_NEAR(got, expected[r * n + j], tolerance + tolerance * std::fabs(expected[r * n + j])) << r << ", " << j;
      }
    }
  }
}

TEST(OnednnMatmul, EqualsPlainProducts) {
  const Activation relu{ActivationKind::kRelu};
  for (int64_t k : {1, 3, 13, 64, 129, 429}) {
    for (int64_t n : {1, 2, 13, 16, 17, 64, 129}) {
      CheckVariant(8, k, n, relu, {});
      CheckVariant(8, k, n, relu, {PanelType::kBfloat16});
      CheckVariant(16, k, n, relu, {PanelType::kFloat32, true, false, true});
      CheckVariant(24, k, n, relu, {PanelType::kBfloat16, true, false, false, true, true});
    }
  }
  CheckVariant(128, 429, 129, relu, {});
  CheckVariant(16, 64, 17, relu, {PanelType::kFloat32, false, true, true, true, false, false});
}

TEST(OnednnMatmul, AppliesActivations) {
  for (int kind = 0; kind <= static_cast<int>(ActivationKind::kDice); ++kind) {
    const Activation activation{static_cast<ActivationKind>(kind), 0.2f};
    if (!OnednnMatmul::CanApply(activation)) continue;
    CheckVariant(16, 64, 17, activation, {});
    CheckVariant(16, 64, 17, activation, {PanelType::kFloat32, false, true, true});
    CheckVariant(16, 64, 17, activation, {PanelType::kFloat32, false, true, false, false});
    CheckVariant(16, 64, 17, activation, {PanelType::kBfloat16});
  }
}

TEST(OnednnMatmul, UsesFastCodeForContiguousRows) {
  for (PanelType type : {PanelType::kFloat32, PanelType::kBfloat16}) {
    if (type == PanelType::kBfloat16 && ThisCpu().isa != Isa::kAvx512) continue;
    for (int64_t k : {1, 13, 429, 512, 1024}) {
      for (int64_t n : {1, 17, 64, 272, 1024}) {
        const std::vector<float> weights(k * n, 0.5f), bias(n);
        for (int kind = 0; kind <= static_cast<int>(ActivationKind::kDice); ++kind) {
          const Activation activation{static_cast<ActivationKind>(kind), 0.2f};
          if (!OnednnMatmul::CanApply(activation)) continue;
          std::unique_ptr<OnednnMatmul> matmul;
          ASSERT_TRUE(OnednnMatmul::Create(weights.data(), false, {k, n, type}, nullptr, activation, &matmul).ok());
          for (int64_t rows : {8, 40, 128}) {
            for (bool first : {true, false}) {
              OnednnMatmul::Call call;
              call.rows = rows;
              call.src_stride = k;
              call.dst_stride = n;
              call.bias = first ? bias.data() : nullptr;
              call.accumulate = !first;
              call.activate = true;
              call.dst_bfloat16 = first && type == PanelType::kBfloat16;
              EXPECT_FALSE(matmul->IsReference(call)) << rows << "x" << k << "x" << n << " activation " << kind;
            }
          }
        }
      }
    }
  }
}

TEST(OnednnMatmul, RunsOnManyThreads) {
  const std::vector<float> weights = RandomFloats(64 * 32, 0.1f, 1), bias = RandomFloats(32, 1, 2),
                           src = RandomFloats(128 * 64, 1, 3);
  std::unique_ptr<OnednnMatmul> matmul;
  ASSERT_TRUE(OnednnMatmul::Create(weights.data(), false, {64, 32}, nullptr, {ActivationKind::kRelu}, &matmul).ok());
  std::vector<std::vector<float>> answers(4, std::vector<float>(128 * 32));
  std::vector<std::thread> threads;
  for (std::vector<float>& answer : answers) {
    threads.emplace_back([&] {
      for (int64_t rows = 8; rows <= 128; rows += 8) {
        OnednnMatmul::Call call;
        call.rows = rows;
        call.src = src.data();
        call.src_stride = 64;
        call.bias = bias.data();
        call.dst = answer.data();
        call.dst_stride = 32;
        ASSERT_TRUE(matmul->Run(call).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<float>& answer : answers) ASSERT_EQ(answer, answers[0]);
}

}  // namespace
}  // namespace processor
