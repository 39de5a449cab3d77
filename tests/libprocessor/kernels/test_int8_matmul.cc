// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/int8_matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "naive.h"
#include "src/base/huge_memory.h"
#include "src/kernels/precision.h"

namespace processor {
namespace {

class Int8MatmulTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!HasInt8(ThisCpu())) GTEST_SKIP() << "the CPU has no instructions for products of int8";
  }

  std::vector<float> Floats(int64_t count, float least = -1, float greatest = 1) {
    std::uniform_real_distribution<float> uniform(least, greatest);
    std::vector<float> values(count);
    for (float& value : values) value = uniform(generator_);
    return values;
  }

 private:
  std::mt19937 generator_{7};
};

// Rows of bytes with their memory.
struct RoundedRows {
  RoundedRows(const std::vector<float>& src, int64_t rows, int64_t n)
      : memory(rows * ByteRows::Floats(n) * sizeof(float)),
        bytes(ByteRows::In(reinterpret_cast<float*>(memory.data()), rows, n)) {
    RoundToBytes(rows, n, {src.data(), n}, bytes);
  }
  double At(int64_t row, int64_t column) const {
    return static_cast<double>(bytes.scales[row].scale) *
           (bytes.data[row * bytes.stride + column] - bytes.scales[row].zero);
  }

  HugeMemory memory;
  ByteRows bytes;
};

struct Int8Weights {
  Int8Weights(const std::vector<float>& values, int64_t k, int64_t n, bool transposed)
      : shape{k, n, PanelType::kInt8}, memory(shape.bytes()) {
    PackPanels(values.data(), transposed, shape, memory.data());
  }
  const Int8Columns& Columns(int64_t column) const {
    return *reinterpret_cast<const Int8Columns*>(memory.data() + column / kPanelColumns * shape.panel_bytes() +
                                                 shape.steps() * kStepBytes);
  }
  int Number(int64_t row, int64_t column) const {
    const int64_t at = column / kPanelColumns * shape.panel_bytes() + row / 4 * kStepBytes + column % kPanelColumns * 4;
    return static_cast<int8_t>(memory.data()[at + row % 4]);
  }

  PanelShape shape;
  HugeMemory memory;
};

TEST_F(Int8MatmulTest, RoundsRowsToTheNearestOf256Steps) {
  for (int64_t n : {1, 2, 15, 16, 17, 64, 429}) {
    const int64_t rows = 5;
    std::vector<float> src = Floats(rows * n);
    for (int64_t i = 0; i < n; ++i) {
      src[n + i] = std::fabs(src[n + i]);
      src[2 * n + i] = -std::fabs(src[2 * n + i]);
      src[3 * n + i] *= 3e38f;
      src[4 * n + i] = 0;
    }
    const RoundedRows rounded(src, rows, n);
    EXPECT_EQ(rounded.bytes.scales[1].zero, 0);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < n; ++i) {
        const double half = rounded.bytes.scales[r].scale * 0.5001;
        ASSERT_NEAR(rounded.At(r, i), src[r * n + i], half) << r << ", " << i << " of " << n;
      }
    }
  }
}

TEST_F(Int8MatmulTest, GivesRowsWithNanOrInfinityTheScaleNan) {
  const int64_t n = 37;
  for (float special : {kNan, -kNan, kInfinity, -kInfinity}) {
    for (int64_t at : {int64_t{0}, int64_t{17}, n - 1}) {
      std::vector<float> src = Floats(2 * n);
      src[n + at] = special;
      const RoundedRows rounded(src, 2, n);
      EXPECT_FALSE(std::isnan(rounded.bytes.scales[0].scale));
      EXPECT_TRUE(std::isnan(rounded.bytes.scales[1].scale)) << special << " at " << at;
    }
  }
}

TEST_F(Int8MatmulTest, ReadsTinyNumbersAsZero) {
  const RoundedRows rounded({1e-37f, -1e-40f, 0}, 1, 3);
  for (int64_t i = 0; i < 3; ++i) EXPECT_LT(std::fabs(rounded.At(0, i)), 1e-36);
}

TEST_F(Int8MatmulTest, PacksEachColumnWithAScaleOfItsOwn) {
  const int64_t k = 21, n = 70;
  std::vector<float> values = Floats(k * n);
  for (int64_t i = 0; i < k; ++i) {
    values[i * n + 65] *= 1000;
    values[i * n + 66] = 0;
  }
  const Int8Weights weights(values, k, n, false);
  for (int64_t j = 0; j < n; ++j) {
    int sum = 0;
    const double scale = weights.Columns(j).scales[j % kPanelColumns];
    for (int64_t i = 0; i < k; ++i) {
      sum += weights.Number(i, j);
      ASSERT_NEAR(weights.Number(i, j) * scale, values[i * n + j], scale * 0.5001) << i << ", " << j;
    }
    EXPECT_EQ(weights.Columns(j).sums[j % kPanelColumns], sum);
  }
}

TEST_F(Int8MatmulTest, EqualsPlainProducts) {
  for (int64_t rows : {0, 1, 2, 3, 4, 5, 6, 7, 8, 13, 14, 15, 16, 29, 43, 128}) {
    for (int64_t k : {1, 2, 3, 4, 5, 13, 64, 129, 429}) {
      for (int64_t n : {1, 2, 15, 16, 17, 33, 49, 64, 65, 129}) {
        if (rows > 16 && k * n > 3000 && (rows + k + n) % 3 != 0) continue;
        SCOPED_TRACE(testing::Message() << rows << "x" << k << "x" << n);
        const bool accumulate = rows % 2 != 0, transposed = k % 3 == 0;
        const float floor = n % 2 == 0 ? 0 : -kInfinity;
        const std::vector<float> src = Floats(rows * k, n % 3 == 0 ? 0 : -1), bias = Floats(n);
        const Int8Weights weights(Floats(k * n), k, n, transposed);
        const RoundedRows rounded(src, rows, k);
        const int64_t stride = n + 5;
        std::vector<float> dst = Floats(rows == 0 ? 0 : (rows - 1) * stride + n);
        const std::vector<float> before = dst;
        MultiplyInt8({rows, rounded.bytes, weights.shape, weights.memory.data(), accumulate ? nullptr : bias.data(),
                      floor, false, dst.data(), stride});
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t j = 0; j < n; ++j) {
            double sum = 0;
            for (int64_t i = 0; i < k; ++i) sum += rounded.At(r, i) * weights.Number(i, j);
            const double start = accumulate ? before[r * stride + j] : bias[j];
            const double expected = std::max<double>(sum * weights.Columns(j).scales[j % kPanelColumns] + start, floor);
            ASSERT_NEAR(dst[r * stride + j], expected, 1e-6 + 1e-6 * std::fabs(expected)) << r << ", " << j;
          }
          for (int64_t j = n; j < stride && r + 1 < rows; ++j) ASSERT_EQ(dst[r * stride + j], before[r * stride + j]);
        }
      }
    }
  }
}

TEST_F(Int8MatmulTest, RowsHaveEqualBitsInABatchAndAlone) {
  const int64_t rows = 128, k = 429, n = 200;
  const std::vector<float> src = Floats(rows * k), bias = Floats(n);
  const Int8Weights weights(Floats(k * n), k, n, false);
  const auto compute = [&](int64_t first, int64_t count) {
    const RoundedRows rounded({src.begin() + first * k, src.begin() + (first + count) * k}, count, k);
    std::vector<float> dst(count * n);
    MultiplyInt8({count, rounded.bytes, weights.shape, weights.memory.data(), bias.data(), 0, false, dst.data(), n});
    return dst;
  };
  const std::vector<float> all = compute(0, rows);
  for (int64_t count : {1, 2, 6, 7, 14, 15, 33}) {
    const std::vector<float> some = compute(rows - count, count);
    EXPECT_EQ(std::memcmp(some.data(), all.data() + (rows - count) * n, some.size() * sizeof(float)), 0) << count;
  }
}

// All products have their greatest size and one sign.
TEST_F(Int8MatmulTest, SumsOfTheMostTermsDoNotOverflow) {
  const int64_t k = kMostInt8Terms;
  const Int8Weights weights(std::vector<float>(k, -1), k, 1, false);
  for (float x : {1.0f, -1.0f}) {
    const RoundedRows rounded(std::vector<float>(k, x), 1, k);
    const float bias = 0;
    float dst = 0;
    MultiplyInt8({1, rounded.bytes, weights.shape, weights.memory.data(), &bias, -kInfinity, false, &dst, 1});
    EXPECT_NEAR(dst, -x * static_cast<float>(k), 1e-6f * static_cast<float>(k));
  }
}

TEST_F(Int8MatmulTest, NanOfARowOrColumnStaysNanOrBecomesTheFloor) {
  const std::vector<float> src = {1, 2, kNan, 2}, bias = {0, 0, 0};
  const Int8Weights weights({1, kNan, 1, 1, 1, -1}, 2, 3, false);
  const RoundedRows rounded(src, 2, 2);
  for (bool zero_nan : {false, true}) {
    std::vector<float> dst(6, 7.0f);
    MultiplyInt8({2, rounded.bytes, weights.shape, weights.memory.data(), bias.data(), 0, zero_nan, dst.data(), 3});
    EXPECT_NEAR(dst[0], 3, 0.1);
    EXPECT_EQ(dst[2], 0);
    for (int at : {1, 3, 4, 5}) {
      EXPECT_TRUE(zero_nan ? dst[at] == 0 : std::isnan(dst[at])) << at;
    }
  }
}

}  // namespace
}  // namespace processor
