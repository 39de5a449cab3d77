// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/follow/precision_comparison.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "src/base/rank_correlation.h"
#include "src/runtime/rows/answers_agree.h"
#include "tensorflow/core/framework/types.h"

namespace processor {
namespace {

using tensorflow::Tensor;

// As in graph_tools/verification/compare.py.
constexpr double kEqual = 1e-5, kEqualShare = 1e-5;
constexpr double kFar = 0.05, kFarShare = 0.1;
constexpr size_t kMostRanked = size_t{1} << 20;

template <typename T>
std::vector<double> AsDoubles(const Tensor& tensor) {
  const T* const data = static_cast<const T*>(tensor.data());
  std::vector<double> numbers(static_cast<size_t>(tensor.NumElements()));
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<double>(data[i]);
  return numbers;
}

bool IsScore(tensorflow::DataType dtype) {
  return dtype == tensorflow::DT_FLOAT || dtype == tensorflow::DT_DOUBLE || dtype == tensorflow::DT_HALF ||
         dtype == tensorflow::DT_BFLOAT16;
}

std::vector<double> Scores(const Tensor& tensor) {
  switch (tensor.dtype()) {
    case tensorflow::DT_DOUBLE:
      return AsDoubles<double>(tensor);
    case tensorflow::DT_HALF:
      return AsDoubles<Eigen::half>(tensor);
    case tensorflow::DT_BFLOAT16:
      return AsDoubles<tensorflow::bfloat16>(tensor);
    default:
      return AsDoubles<float>(tensor);
  }
}

// Returns 1 less Spearman's correlation; false if `exact` has no order.
bool RankLoss(const std::vector<float>& exact, const std::vector<float>& other, double* loss) {
  if (std::all_of(exact.begin(), exact.end(), [&](float score) { return score == exact.front(); })) return false;
  double correlation = 0;  // if all other scores are equal
  RankCorrelation(exact, other, &correlation);
  *loss = std::max(0.0, 1 - correlation);
  return true;
}

}  // namespace

void PrecisionComparison::Add(const std::string& name, const Tensor& exact, const Tensor& other) {
  Output& output = outputs_[name];
  if (exact.dtype() != other.dtype() || exact.shape() != other.shape()) {
    output.others_differ = true;
  } else if (IsScore(exact.dtype())) {
    AddScores(exact, other, &output);
  } else {
    output.others_differ |= !Same({exact}, {other});
  }
}

void PrecisionComparison::AddScores(const Tensor& exact, const Tensor& other, Output* output) {
  const std::vector<double> a = Scores(exact), b = Scores(other);
  const double largest = LargestOf(other);
  const bool ranked = output->exact.size() < kMostRanked;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) || std::isnan(b[i])) {
      output->others_differ |= std::isnan(a[i]) != std::isnan(b[i]);
      continue;
    }
    const bool finite = std::isfinite(a[i]) && std::isfinite(b[i]);
    if (finite) {
      const double difference = std::abs(a[i] - b[i]);
      output->max_difference = std::max(output->max_difference, difference);
      output->beyond += difference > kEqual + kEqualShare * std::abs(b[i]);
      output->far += difference > kFar + kFarShare * largest;
    } else if (a[i] != b[i]) {
      ++output->beyond;
      ++output->far;
    }
    if (!ranked || !finite) continue;
    output->exact.push_back(static_cast<float>(a[i]));
    output->other.push_back(static_cast<float>(b[i]));
  }
}

PrecisionLoss PrecisionComparison::Judge(const std::string& precision, double limit) const {
  PrecisionLoss loss;
  for (const auto& [name, output] : outputs_) {
    loss.max_difference = std::max(loss.max_difference, output.max_difference);
    double rank_loss = 0;
    const bool has_order = RankLoss(output.exact, output.other, &rank_loss);
    loss.rank_correlation_loss = std::max(loss.rank_correlation_loss, rank_loss);
    const std::string differs = absl::StrCat(name, ": differs by ", output.max_difference, " in ", precision);
    std::string problem;
    if (output.others_differ) {
      problem = absl::StrCat(name, ": outputs other than scores differ in ", precision);
    } else if (output.beyond > 0 && !has_order) {
      problem = absl::StrCat(differs, ", and its values have no order to compare");
    } else if (output.beyond > 0 && rank_loss > limit) {
      problem = absl::StrCat(name, ": loses ", rank_loss, " of rank correlation in ", precision, ", expected at most ",
                             limit);
    } else if (output.far > 0) {
      problem = absl::StrCat(differs, ", expected at most ", kFar, " + ", kFarShare, " x |score|");
    }
    if (loss.problem.empty()) loss.problem = std::move(problem);
  }
  return loss;
}

}  // namespace processor
