// SPDX-License-Identifier: Apache-2.0
// Pooling against loops, for each instruction set.
#include "src/kernels/sequence_pooling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "naive.h"

namespace processor {
namespace {

std::vector<double> NaivePooling(const std::vector<float>& values, const std::vector<float>& weights, int64_t dim,
                                 const PoolingRule& rule) {
  std::vector<double> pooled;
  for (int64_t e = 0; e < dim; ++e) {
    double sum = 0, total = 0, most = -std::numeric_limits<double>::infinity();
    for (size_t t = 0; t < weights.size(); ++t) {
      const double value = values[t * dim + e], weight = weights[t];
      sum += weight * value;
      total += weight;
      most = std::max(most, rule.shift ? value + (1 - weight) * rule.padding : weight != 0 ? value : rule.padding);
    }
    const double divisor = std::max<double>(total + rule.epsilon, rule.least);
    pooled.push_back(rule.combiner == Pooling::kMax ? most : rule.combiner == Pooling::kSum ? sum : sum / divisor);
  }
  return pooled;
}

TEST(SequencePooling, EqualsLoops) {
  const std::vector<PoolingRule> rules = {
      {Pooling::kSum},           {Pooling::kMean, 1e-8f},         {Pooling::kMean, 0, 1},
      {Pooling::kMax, 0, 0, -9}, {Pooling::kMax, 0, 0, -2, true},
  };
  for (Isa isa : SupportedIsas()) {
    for (const PoolingRule& rule : rules) {
      for (int64_t length : {1, 2, 7, 50}) {
        for (int64_t dim : {1, 7, 8, 16, 17, 33}) {
          for (int64_t count : {int64_t{0}, int64_t{1}, length}) {
            SCOPED_TRACE(testing::Message() << IsaName(isa) << " " << length << "x" << dim << " with " << count);
            const std::vector<float> values = SomeFloats(length * dim);
            std::vector<float> weights(length, 0), dst(dim, -7);
            for (int64_t t = 0; t < count; ++t) weights[t] = 1;
            PoolSequence(values.data(), weights.data(), length, dim, rule, static_cast<float>(count), dst.data(), isa);
            ExpectNear(dst, NaivePooling(values, weights, dim, rule));
          }
        }
      }
    }
  }
}

TEST(SequencePooling, AppliesWeightsOfPositions) {
  const std::vector<float> values = SomeFloats(5 * 3), weights = {0.5f, 0, 2, -1, 0.25f};
  for (Isa isa : SupportedIsas()) {
    for (PoolingRule rule : {PoolingRule{Pooling::kSum}, PoolingRule{Pooling::kMean}}) {
      std::vector<float> dst(3);
      PoolSequence(values.data(), weights.data(), 5, 3, rule, 1.75f, dst.data(), isa);
      ExpectNear(dst, NaivePooling(values, weights, 3, rule));
    }
  }
}

TEST(SequencePooling, DividesByGivenLength) {
  const std::vector<float> values = {3, -6}, weights = {1, 1};
  for (Isa isa : SupportedIsas()) {
    const std::vector<std::pair<float, float>> means = {{-2, 1.5f}, {4, -0.75f}, {0.5f, -6}};
    for (const auto& [count, mean] : means) {
      float dst = -7;
      PoolSequence(values.data(), weights.data(), 2, 1, {Pooling::kMean}, count, &dst, isa);
      EXPECT_EQ(dst, mean) << IsaName(isa);
    }
    const float none[] = {0, 0};
    float dst = -7;
    PoolSequence(values.data(), none, 2, 1, {Pooling::kMean, 1e-8f}, -3, &dst, isa);
    EXPECT_EQ(dst, 0) << "no position counts where a length is negative";
    PoolSequence(values.data(), none, 2, 1, {Pooling::kMean}, 0, &dst, isa);
    EXPECT_TRUE(std::isnan(dst)) << "nothing divided by nothing";
  }
}

// As 0 · NaN is NaN where TensorFlow multiplies with the mask.
TEST(SequencePooling, SumsKeepNanInPadding) {
  for (const float special : {kNan, kInfinity, -kInfinity}) {
    const std::vector<float> values = {1, 2, special, 3}, weights = {1, 0};
    for (Isa isa : SupportedIsas()) {
      std::vector<float> dst(2);
      PoolSequence(values.data(), weights.data(), 2, 2, {Pooling::kSum}, 1, dst.data(), isa);
      EXPECT_TRUE(std::isnan(dst[0])) << dst[0];
      EXPECT_EQ(dst[1], 2);
    }
  }
}

// DivNoNan gives 0 where the count is 0, whatever is divided.
TEST(SequencePooling, DivNoNanOfAnEmptySequenceIsZero) {
  const std::vector<float> values = {kNan, 2}, weights = {0, 0};
  for (Isa isa : SupportedIsas()) {
    float dst = 7;
    PoolSequence(values.data(), weights.data(), 2, 1, {Pooling::kMean, 0, kNoNan}, 0, &dst, isa);
    EXPECT_EQ(dst, 0);
  }
}

// Blocks of columns of every width, runs of padding at both ends and between, and whatever numbers there are.
TEST(SequencePooling, MaximaEqualColumnwiseLoop) {
  const float numbers[] = {0, -0.0f, 1, -1, 2, -2, 0.5f, kInfinity, -kInfinity, kNan};
  const float some_weights[] = {0, 1, 1, -0.0f, 0.5f, kNan};
  std::mt19937 generator(1);
  for (Isa isa : SupportedIsas()) {
    for (int64_t dim : {1, 3, 4, 5, 12, 15, 24, 31, 64, 67, 100}) {
      for (int64_t length : {1, 2, 5, 20}) {
        for (int round = 0; round < 60; ++round) {
          const PoolingRule rule = {Pooling::kMax, 0, 0, numbers[generator() % 10], round % 3 == 0};
          SCOPED_TRACE(testing::Message() << IsaName(isa) << " " << length << "x" << dim << ", padding " << rule.padding
                                          << (rule.shift ? ", shift" : ""));
          // Few kinds, so that there are maxima of zeros, and infinities of both signs without NaN.
          const size_t kinds = round % 2 == 0 ? 2 : round % 4 == 1 ? 9 : 10;
          std::vector<float> values(length * dim), weights(length), dst(dim, -7);
          for (float& value : values) value = numbers[generator() % kinds];
          for (float& weight : weights) weight = some_weights[generator() % (round % 5 == 0 ? 6 : 4)];
          std::fill_n(weights.begin(), generator() % length, 0.0f);
          std::fill_n(weights.rbegin(), generator() % length, 0.0f);
          PoolSequence(values.data(), weights.data(), length, dim, rule, 0, dst.data(), isa);
          for (int64_t e = 0; e < dim; ++e) {
            float most = -kInfinity;
            for (int64_t t = 0; t < length; ++t) {
              const float value = values[t * dim + e], shifted = value + (1 - weights[t]) * rule.padding;
              const float counted = rule.shift ? shifted : weights[t] != 0 ? value : rule.padding;
              if (!std::isnan(most) && !(most > counted)) most = counted;
            }
            if (std::isnan(most)) {
              ASSERT_TRUE(std::isnan(dst[e])) << dst[e] << " at " << e;
            } else {
              ASSERT_EQ(dst[e], most) << "at " << e;
              ASSERT_EQ(std::signbit(dst[e]), std::signbit(most)) << "at " << e;
            }
          }
        }
      }
    }
  }
}

TEST(SequencePooling, AcceptsEmptySequences) {
  for (Isa isa : SupportedIsas()) {
    std::vector<float> dst(2, -7);
    PoolSequence(nullptr, nullptr, 0, 2, {Pooling::kMean, 1e-8f}, 0, dst.data(), isa);
    EXPECT_EQ(dst, (std::vector<float>{0, 0}));
  }
}

}  // namespace
}  // namespace processor
