// SPDX-License-Identifier: Apache-2.0
#include "src/host/requests/score_comparison.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace processor {
namespace {

constexpr float kNanScore = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfiniteScore = std::numeric_limits<float>::infinity();
using Scores = std::vector<float>;

TEST(ScoreComparison, SumsOverRequests) {
  ScoreComparison comparison;
  EXPECT_TRUE(comparison.Json()["mean_difference"].is_null());
  comparison.Add(Scores{1, 2}, Scores{1.5, 2});
  comparison.Add(Scores{3}, Scores{2});
  comparison.Add(Scores{1, 2, 3}, Scores{kNanScore, kInfiniteScore, 3});
  comparison.Add(Scores{1, 2}, Scores{1});
  comparison.AddError();
  const nlohmann::ordered_json json = comparison.Json();
  EXPECT_EQ(json["requests"], 4);
  EXPECT_EQ(json["scores"], 6);
  EXPECT_DOUBLE_EQ(json["mean_difference"].get<double>(), (0.5 + 0 - 1 + 0) / 4);
  EXPECT_DOUBLE_EQ(json["mean_absolute_difference"].get<double>(), 1.5 / 4);
  EXPECT_DOUBLE_EQ(json["max_absolute_difference"].get<double>(), 1.0);
  EXPECT_DOUBLE_EQ(json["rank_correlation"].get<double>(), 1.0);
  EXPECT_EQ(json["rank_correlation_requests"], 1);
  EXPECT_DOUBLE_EQ(json["nan"].get<double>(), 1.0 / 6);
  EXPECT_DOUBLE_EQ(json["infinite"].get<double>(), 1.0 / 6);
  EXPECT_EQ(json["errors"], 1);
  EXPECT_EQ(json["mismatches"], 1);
}

TEST(ScoreComparison, ReportsSquaresForConfidenceIntervals) {
  ScoreComparison comparison;
  comparison.Add(Scores{1, 2}, Scores{1.5, 2});
  comparison.Add(Scores{3, 1, 2}, Scores{2, 3, 1});
  comparison.Add(Scores{kNanScore, kInfiniteScore}, Scores{1, 2});
  const nlohmann::ordered_json json = comparison.Json();
  // Means of 0.5 and 0, and of 1, 2 and 1; the third has no pair.
  EXPECT_EQ(json["compared_requests"], 2);
  EXPECT_DOUBLE_EQ(json["request_difference"].get<double>(), (0.25 + 4.0 / 3) / 2);
  EXPECT_DOUBLE_EQ(json["request_difference_squares"].get<double>(), (0.0625 + 16.0 / 9) / 2);
  EXPECT_EQ(json["rank_correlation_requests"], 2);
  EXPECT_DOUBLE_EQ(json["rank_correlation"].get<double>(), (1 - 0.5) / 2);
  EXPECT_DOUBLE_EQ(json["rank_correlation_squares"].get<double>(), (1 + 0.25) / 2);
  EXPECT_DOUBLE_EQ(json["live_nan"].get<double>(), 1.0 / 7);
  EXPECT_DOUBLE_EQ(json["live_infinite"].get<double>(), 1.0 / 7);
  EXPECT_DOUBLE_EQ(json["nan"].get<double>(), 0.0);
}

}  // namespace
}  // namespace processor
