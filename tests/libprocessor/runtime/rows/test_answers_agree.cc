// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/rows/answers_agree.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace processor {
namespace {

using tensorflow::Tensor;
using tensorflow::TensorShape;

Tensor AnswerOf(const std::vector<float>& values) {
  Tensor tensor(tensorflow::DT_FLOAT, TensorShape({static_cast<int64_t>(values.size())}));
  std::copy(values.begin(), values.end(), tensor.flat<float>().data());
  return tensor;
}

bool AgreeOf(const std::vector<float>& joint, const std::vector<float>& alone) {
  const Tensor second = AnswerOf(alone);
  return Agree(AnswerOf(joint), second, Tolerance(), LargestOf(second));
}

TEST(AnswersAgreeTest, SmallScoresOfTwoUsersDiffer) {
  EXPECT_FALSE(AgreeOf({2e-4f, 3e-4f}, {3e-4f, 2e-4f}));
  EXPECT_FALSE(AgreeOf({1e-9f, 2e-9f}, {1.01e-9f, 2e-9f}));
}

TEST(AnswersAgreeTest, SumsInAnotherOrderAgree) {
  EXPECT_TRUE(AgreeOf({0.30000001f, 2e-4f}, {0.3f, 2.0001e-4f}));
  EXPECT_TRUE(AgreeOf({5.0f, 1e-6f}, {5.0f, 2e-5f})) << "a logit near 0 beside others";
  EXPECT_FALSE(AgreeOf({5.0f, 1e-6f}, {5.0f, 2e-4f}));
}

TEST(AnswersAgreeTest, NaNAgreesWithNaNAndNothingElse) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(AgreeOf({nan, inf, -inf}, {nan, inf, -inf}));
  EXPECT_FALSE(AgreeOf({nan}, {1.0f}));
  EXPECT_FALSE(AgreeOf({1.0f}, {nan}));
  EXPECT_FALSE(AgreeOf({inf}, {-inf}));
  EXPECT_FALSE(AgreeOf({1.0f}, {inf}));
}

TEST(AnswersAgreeTest, OtherShapesAndWholeNumbersMustBeEqual) {
  EXPECT_FALSE(AgreeOf({1.0f}, {1.0f, 1.0f}));
  Tensor a(tensorflow::DT_INT64, TensorShape({1})), b(tensorflow::DT_INT64, TensorShape({1}));
  a.flat<int64_t>()(0) = 1000000;
  b.flat<int64_t>()(0) = 1000001;
  EXPECT_FALSE(Agree(a, b, Tolerance::OfHalves(), 0));
}

}  // namespace
}  // namespace processor
