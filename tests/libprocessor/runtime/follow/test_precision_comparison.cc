// SPDX-License-Identifier: Apache-2.0
// The rules of the certificate, as graph_tools applies them (graph_tools/verbs/precision_trial.py).
#include "src/runtime/follow/precision_comparison.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tensorflow/core/framework/tensor.h"

namespace processor {
namespace {

using tensorflow::Tensor;

Tensor ScoresOf(const std::vector<float>& values) {
  Tensor tensor(tensorflow::DT_FLOAT, {static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), tensor.flat<float>().data());
  return tensor;
}

PrecisionLoss LossOf(const Tensor& exact, const Tensor& other) {
  PrecisionComparison comparison;
  comparison.Add("output 'y'", exact, other);
  return comparison.Judge("bf16", 1e-3);
}

std::string ProblemOf(const std::vector<float>& exact, const std::vector<float>& other) {
  return LossOf(ScoresOf(exact), ScoresOf(other)).problem;
}

TEST(PrecisionComparison, ScoresMayDifferWhileTheirOrderStays) {
  const PrecisionLoss loss = LossOf(ScoresOf({1, 2, 3}), ScoresOf({1.01f, 2.02f, 3}));
  EXPECT_EQ(loss.problem, "");
  EXPECT_NEAR(loss.max_difference, 0.02, 1e-6);
  EXPECT_EQ(loss.rank_correlation_loss, 0);
}

TEST(PrecisionComparison, ALostOrderIsAProblemOfTheOutput) {
  EXPECT_EQ(ProblemOf({1, 1.01f, 1.02f, 1.03f}, {1, 1.02f, 1.01f, 1.03f}),
            "output 'y': loses 0.2 of rank correlation in bf16, expected at most 0.001");
  EXPECT_EQ(ProblemOf({1, 1.01f}, {1, 1}), "output 'y': loses 1 of rank correlation in bf16, expected at most 0.001");
  EXPECT_EQ(ProblemOf({1, 1 + 1e-6f}, {1, 1}), "") << "less than equal scores of the certificate may differ";
}

TEST(PrecisionComparison, TheOrderIsThatOfAllRequests) {
  PrecisionComparison comparison;
  comparison.Add("output 'y'", ScoresOf({1}), ScoresOf({1}));
  comparison.Add("output 'y'", ScoresOf({2}), ScoresOf({0.95f}));
  EXPECT_NEAR(comparison.Judge("int8", 1e-3).rank_correlation_loss, 2, 1e-12);
}

TEST(PrecisionComparison, ScoresWithoutAnOrderMustBeEqual) {
  const std::string expected = "output 'y': differs by 0.5 in bf16, and its values have no order to compare";
  EXPECT_EQ(ProblemOf({8}, {8.5f}), expected);
  EXPECT_EQ(ProblemOf({8, 8}, {8, 8.5f}), expected);
  EXPECT_EQ(ProblemOf({1, 1}, {1, 1}), "");
}

TEST(PrecisionComparison, SingleScoresMayNotBeFarAway) {
  const std::string expected = "in bf16, expected at most 0.05 + 0.1 x |score|";
  EXPECT_EQ(ProblemOf({1, 2}, {1, 2.5f}), "output 'y': differs by 0.5 " + expected);
  EXPECT_EQ(ProblemOf({1, 2}, {1, 2.25f}), "") << "a tenth of the largest score and a twentieth";
  EXPECT_EQ(ProblemOf({1, 2, 3}, {1, 2, INFINITY}), "output 'y': differs by 0 " + expected);
}

TEST(PrecisionComparison, OtherOutputsMustBeEqual) {
  const std::string expected = "output 'y': outputs other than scores differ in bf16";
  EXPECT_EQ(ProblemOf({1, 2}, {1, NAN}), expected);
  EXPECT_EQ(ProblemOf({1, 2, NAN}, {1, 2, NAN}), "");
  EXPECT_EQ(ProblemOf({1, 2}, {1}), expected);
  Tensor one(tensorflow::DT_INT64, {1}), two(tensorflow::DT_INT64, {1});
  one.flat<int64_t>()(0) = 1;
  two.flat<int64_t>()(0) = 2;
  EXPECT_EQ(LossOf(one, one).problem, "");
  EXPECT_EQ(LossOf(one, two).problem, expected);
  Tensor text(tensorflow::DT_STRING, {1}), other(tensorflow::DT_STRING, {1});
  text.flat<tensorflow::tstring>()(0) = "a";
  EXPECT_EQ(LossOf(text, text).problem, "");
  EXPECT_EQ(LossOf(text, other).problem, expected);
}

}  // namespace
}  // namespace processor
