// SPDX-License-Identifier: Apache-2.0
#include "src/host/requests/score_counts.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace processor {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(ScoreCounts, CountsNanAndInfiniteScores) {
  ScoreCounts counts;
  const float largest = std::numeric_limits<float>::max(), smallest = std::numeric_limits<float>::denorm_min();
  counts.Add(std::vector<float>{0.0f, -0.0f, largest, -largest, smallest, 1.5f});
  EXPECT_EQ(counts.nan() + counts.infinite(), 0u);
  counts.Add(std::vector<float>{kNan, -kNan, std::numeric_limits<float>::signaling_NaN(), kInf, -kInf, 0.5f});
  EXPECT_EQ(counts.answers(), 2u);
  EXPECT_EQ(counts.scores(), 12u);
  EXPECT_EQ(counts.nan(), 3u);
  EXPECT_EQ(counts.infinite(), 2u);
}

TEST(ScoreCounts, AnswersWithoutScoresDoNotCount) {
  ScoreCounts counts;
  counts.Add({});
  EXPECT_EQ(counts.answers(), 0u);
}

TEST(ScoreCounts, ChecksOnlyTheFirstThousands) {
  ScoreCounts counts;
  counts.Add(std::vector<float>(10 * ScoreCounts::kMostPerAnswer, kNan));
  EXPECT_EQ(counts.answers(), 1u);
  EXPECT_EQ(counts.scores(), ScoreCounts::kMostPerAnswer);
  EXPECT_EQ(counts.nan(), ScoreCounts::kMostPerAnswer);
}

}  // namespace
}  // namespace processor
