// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/row_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "naive.h"
#include "src/kernels/weight_panels.h"

namespace processor {
namespace {

const std::vector<int64_t> kWidths = {1, 2, 3, 13, 16, 17, 64, 129};
constexpr int64_t kRows = 3;

double Expected(ActivationKind kind, double x, double alpha) {
  switch (kind) {
    case ActivationKind::kNone:
      return x;
    case ActivationKind::kRelu:
      return std::max(x, 0.0);
    case ActivationKind::kRelu6:
      return std::min(std::max(x, 0.0), 6.0);
    case ActivationKind::kLeakyRelu:
      return x < 0 ? alpha * x : x;
    case ActivationKind::kElu:
      return x < 0 ? std::expm1(x) : x;
    case ActivationKind::kSelu:
      return kSeluScale * (x < 0 ? kSeluAlpha * std::expm1(x) : x);
    case ActivationKind::kSigmoid:
      return Sigmoid(x);
    case ActivationKind::kTanh:
      return std::tanh(x);
    case ActivationKind::kGelu:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case ActivationKind::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case ActivationKind::kSwish:
      return x * Sigmoid(x);
    case ActivationKind::kSoftplus:
      return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
    default:
      ADD_FAILURE() << "no function of one number";
      return 0;
  }
}

const std::vector<ActivationKind> kSimple = {
    ActivationKind::kNone, ActivationKind::kRelu,     ActivationKind::kRelu6,   ActivationKind::kLeakyRelu,
    ActivationKind::kElu,  ActivationKind::kSelu,     ActivationKind::kSigmoid, ActivationKind::kTanh,
    ActivationKind::kGelu, ActivationKind::kGeluTanh, ActivationKind::kSwish,   ActivationKind::kSoftplus};

// 2e-6 is a fifth of what scores may differ by.
void ExpectNumberNear(float got, double expected, const std::string& what) {
  ASSERT_NEAR(got, expected, 2e-6 + 1e-6 * std::fabs(expected)) << what;
}

class RowMathTest : public testing::TestWithParam<Isa> {
 protected:
  const RowMath& math_ = RowMathFor(GetParam());
};

TEST_P(RowMathTest, ActivationsEqualTheirFormulas) {
  for (ActivationKind kind : kSimple) {
    std::vector<float> x;
    for (float value = -20; value <= 20; value += 0.0037f) x.push_back(value);
    for (float value : {0.0f, -0.0f, 1e-30f, -1e-30f, 1e-5f, -1e-5f, 90.0f, -90.0f, 1e4f, -1e4f}) x.push_back(value);
    std::vector<float> y = x;
    math_.activate({kind, 0.3f}, 1, static_cast<int64_t>(y.size()), {y.data(), 0});
    for (size_t i = 0; i < x.size(); ++i) {
      ExpectNumberNear(y[i], Expected(kind, x[i], 0.3f),
                       "kind " + std::to_string(static_cast<int>(kind)) + " of " + std::to_string(x[i]));
    }
  }
}

TEST_P(RowMathTest, SmallSigmoidsAreRelativelyExact) {
  std::vector<float> x, y;
  for (float value = -80; value < 0; value += 0.013f) x.push_back(value);
  y = x;
  math_.activate({ActivationKind::kSigmoid}, 1, static_cast<int64_t>(y.size()), {y.data(), 0});
  for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(y[i] / Sigmoid(x[i]), 1, 5e-7) << x[i];
}

TEST_P(RowMathTest, ActivationsKeepNanAndAcceptInfinities) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (ActivationKind kind : kSimple) {
    std::vector<float> x(17, std::numeric_limits<float>::quiet_NaN());
    math_.activate({kind, 0.3f}, 1, 17, {x.data(), 0});
    for (float value : x) ASSERT_TRUE(std::isnan(value)) << static_cast<int>(kind);
    x.assign(17, infinity);
    math_.activate({kind, 0.3f}, 1, 17, {x.data(), 0});
    for (float value : x) ASSERT_EQ(value, Expected(kind, infinity, 0.3f)) << static_cast<int>(kind);
  }
}

TEST_P(RowMathTest, PreluAndDiceHaveWeightsForEachColumn) {
  for (int64_t n : kWidths) {
    const int64_t stride = n + 2;
    const std::vector<float> before = RandomFloats(kRows * stride, 4, 1), alpha = RandomFloats(n, 1, 2),
                             scale = RandomFloats(n, 2, 3), shift = RandomFloats(n, 1, 4);
    std::vector<float> prelu = before, dice = before;
    math_.activate({ActivationKind::kPrelu, 0, alpha.data()}, kRows, n, {prelu.data(), stride});
    math_.activate({ActivationKind::kDice, 0, alpha.data(), scale.data(), shift.data()}, kRows, n,
                   {dice.data(), stride});
    for (int64_t i = 0; i < kRows * stride; ++i) {
      const int64_t j = i % stride;
      if (j >= n) {
        ASSERT_EQ(prelu[i], before[i]);
        ASSERT_EQ(dice[i], before[i]);
        continue;
      }
      const double x = before[i], p = Sigmoid(x * scale[j] + shift[j]);
      ExpectNumberNear(prelu[i], x < 0 ? alpha[j] * x : x, "prelu");
      ExpectNumberNear(dice[i], p * x + (1 - p) * alpha[j] * x, "dice");
    }
  }
}

TEST_P(RowMathTest, SoftmaxOfColumnsUsesWholeColumns) {
  for (int64_t rows : {1, 2, 7, 20}) {
    const int64_t n = 48, stride = 49;
    const std::vector<float> x = RandomFloats(rows * stride, 30, 9);
    std::vector<float> softmax = x;
    math_.softmax_of_columns(rows, n, {softmax.data(), stride});
    for (int64_t j = 0; j < n; ++j) {
      double greatest = x[j], sum = 0;
      for (int64_t r = 0; r < rows; ++r) greatest = std::max<double>(greatest, x[r * stride + j]);
      for (int64_t r = 0; r < rows; ++r) sum += std::exp(x[r * stride + j] - greatest);
      for (int64_t r = 0; r < rows; ++r) {
        ExpectNumberNear(softmax[r * stride + j], std::exp(x[r * stride + j] - greatest) / sum, "softmax of columns");
      }
    }
    EXPECT_EQ(softmax[n], x[n]) << "beyond the columns";
  }
}

TEST_P(RowMathTest, SoftmaxAndLayerNormUseWholeRows) {
  for (int64_t n : kWidths) {
    const int64_t stride = n + 1;
    const std::vector<float> x = RandomFloats(kRows * stride, 30, 5), gamma = RandomFloats(n, 2, 6),
                             beta = RandomFloats(n, 1, 7);
    std::vector<float> softmax = x, normed(kRows * stride);
    math_.activate({ActivationKind::kSoftmax}, kRows, n, {softmax.data(), stride});
    math_.layer_norm(kRows, n, {x.data(), stride}, gamma.data(), beta.data(), 1e-3f, {normed.data(), stride});
    for (int64_t r = 0; r < kRows; ++r) {
      const float* row = x.data() + r * stride;
      double greatest = row[0], sum = 0, mean = 0, variance = 0;
      for (int64_t j = 0; j < n; ++j) greatest = std::max<double>(greatest, row[j]);
      for (int64_t j = 0; j < n; ++j) sum += std::exp(row[j] - greatest), mean += row[j] / static_cast<double>(n);
      for (int64_t j = 0; j < n; ++j) variance += (row[j] - mean) * (row[j] - mean) / static_cast<double>(n);
      for (int64_t j = 0; j < n; ++j) {
        ExpectNumberNear(softmax[r * stride + j], std::exp(row[j] - greatest) / sum, "softmax");
        ExpectNumberNear(normed[r * stride + j], (row[j] - mean) / std::sqrt(variance + 1e-3) * gamma[j] + beta[j],
                         "norm");
      }
    }
  }
}

TEST_P(RowMathTest, CombinesRowsAndBroadcastsOneRow) {
  for (int64_t n : kWidths) {
    for (const int64_t stride : {n + 2, int64_t{0}}) {
      const std::vector<float> src = RandomFloats(kRows * (n + 2), 1, 8), before = RandomFloats(kRows * n, 1, 9),
                               scale = RandomFloats(n, 1, 10), shift = RandomFloats(n, 1, 11);
      std::vector<float> sum = before, product = before, mixed = before, affine(kRows * n);
      const SrcRows from{src.data(), stride};
      math_.add(kRows, n, from, {sum.data(), n});
      math_.multiply(kRows, n, from, {product.data(), n});
      math_.multiply_add(kRows, n, {scale.data(), 0}, from, {mixed.data(), n});
      math_.affine(kRows, n, from, scale.data(), shift.data(), {affine.data(), n});
      for (int64_t i = 0; i < kRows * n; ++i) {
        const double x = src[i / n * stride + i % n];
        ExpectNumberNear(sum[i], before[i] + x, "add");
        ExpectNumberNear(product[i], before[i] * x, "multiply");
        ExpectNumberNear(mixed[i], before[i] + scale[0] * x, "multiply_add");
        ExpectNumberNear(affine[i], x * scale[i % n] + shift[i % n], "affine");
      }
    }
  }
}

TEST_P(RowMathTest, RoundsLikeWeights) {
  std::vector<float> x = RandomFloats(1001, 1e3f, 12);
  x[5] = std::numeric_limits<float>::quiet_NaN();
  x[6] = std::numeric_limits<float>::infinity();
  const int64_t n = static_cast<int64_t>(x.size());
  std::vector<float> rounded(x.size());
  std::vector<uint16_t> bits(x.size());
  math_.round(1, n, {x.data(), 0}, {rounded.data(), 0});
  math_.to_bfloat16(1, n, {x.data(), 0}, bits.data(), 0);
  for (size_t i = 0; i < x.size(); ++i) {
    const uint16_t expected = FloatToBfloat16(x[i]);
    ASSERT_EQ(bits[i], expected) << x[i];
    ASSERT_EQ(FloatToBfloat16(rounded[i]), expected) << x[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, RowMathTest, testing::ValuesIn(SupportedIsas()),
                         [](const auto& info) { return IsaName(info.param); });

}  // namespace
}  // namespace processor
