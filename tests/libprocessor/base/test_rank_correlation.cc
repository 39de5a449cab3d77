// SPDX-License-Identifier: Apache-2.0
#include "src/base/rank_correlation.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace processor {
namespace {

constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinite = std::numeric_limits<float>::infinity();
using Scores = std::vector<float>;

double Correlation(const Scores& a, const Scores& b) {
  double correlation = -2;
  EXPECT_TRUE(RankCorrelation(a, b, &correlation));
  return correlation;
}

TEST(RankCorrelation, DependsOnlyOnTheOrder) {
  EXPECT_DOUBLE_EQ(Correlation({1, 2, 3}, {10, 20, 1000}), 1.0);
  EXPECT_DOUBLE_EQ(Correlation({1, 2, 3}, {-1, -2, -1000}), -1.0);
  EXPECT_DOUBLE_EQ(Correlation({2, 1}, {1, 2}), -1.0);
  // 1 - 6 * (0 + 1 + 1 + 0) / (4 * 15)
  EXPECT_DOUBLE_EQ(Correlation({1, 2, 3, 4}, {1, 3, 2, 4}), 0.8);
  // Ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4.
  EXPECT_NEAR(Correlation({1, 2, 2, 4}, {1, 2, 3, 4}), 0.9486832980505138, 1e-12);
}

TEST(RankCorrelation, IsNotAlwaysDefined) {
  double correlation = 7;
  EXPECT_FALSE(RankCorrelation({}, {}, &correlation));
  EXPECT_FALSE(RankCorrelation(Scores{1}, Scores{1}, &correlation));
  EXPECT_FALSE(RankCorrelation(Scores{1, 2}, Scores{1}, &correlation));
  EXPECT_FALSE(RankCorrelation(Scores{1, 1}, Scores{1, 2}, &correlation));
  EXPECT_FALSE(RankCorrelation(Scores{1, kNotANumber}, Scores{1, 2}, &correlation));
  EXPECT_FALSE(RankCorrelation(Scores{1, 2}, Scores{1, kInfinite}, &correlation));
  EXPECT_EQ(correlation, 7);
}

}  // namespace
}  // namespace processor
