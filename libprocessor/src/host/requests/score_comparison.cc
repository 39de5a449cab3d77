// SPDX-License-Identifier: Apache-2.0
#include "src/host/requests/score_comparison.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace processor {
namespace {

// Returns ranks from 1; equal values share the mean of their ranks.
std::vector<double> Ranks(absl::Span<const float> values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    const double rank = (static_cast<double>(begin + 1) + static_cast<double>(end)) / 2;
    for (size_t i = begin; i < end; ++i) ranks[order[i]] = rank;
    begin = end;
  }
  return ranks;
}

bool AllFinite(absl::Span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
}

}  // namespace

bool RankCorrelation(absl::Span<const float> a, absl::Span<const float> b, double* correlation) {
  if (a.size() != b.size() || a.size() < 2 || !AllFinite(a) || !AllFinite(b)) return false;
  const std::vector<double> x = Ranks(a), y = Ranks(b);
  const double mean = (static_cast<double>(a.size()) + 1) / 2;
  double xy = 0, xx = 0, yy = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    xy += (x[i] - mean) * (y[i] - mean);
    xx += (x[i] - mean) * (x[i] - mean);
    yy += (y[i] - mean) * (y[i] - mean);
  }
  if (xx == 0 || yy == 0) return false;
  *correlation = xy / std::sqrt(xx * yy);
  return true;
}

void ScoreComparison::Add(absl::Span<const float> live, absl::Span<const float> shadow) {
  ++requests_;
  if (live.size() != shadow.size()) {
    ++mismatches_;
    return;
  }
  double differences = 0;
  uint64_t pairs = 0;
  for (size_t i = 0; i < live.size(); ++i) {
    ++scores_;
    live_nan_ += std::isnan(live[i]);
    live_infinite_ += std::isinf(live[i]);
    nan_ += std::isnan(shadow[i]);
    infinite_ += std::isinf(shadow[i]);
    if (!std::isfinite(live[i]) || !std::isfinite(shadow[i])) continue;
    const double difference = double{shadow[i]} - double{live[i]};
    ++pairs;
    sum_ += difference;
    differences += std::abs(difference);
    max_absolute_ = std::max(max_absolute_, std::abs(difference));
  }
  if (pairs > 0) {
    const double mean = differences / static_cast<double>(pairs);
    compared_ += pairs;
    sum_absolute_ += differences;
    ++compared_requests_;
    sum_request_difference_ += mean;
    sum_request_difference_squares_ += mean * mean;
  }
  double correlation = 0;
  if (RankCorrelation(live, shadow, &correlation)) {
    ++ranked_;
    sum_correlation_ += correlation;
    sum_correlation_squares_ += correlation * correlation;
  }
}

nlohmann::ordered_json ScoreComparison::Json() const {
  using Json = nlohmann::ordered_json;
  const auto rate = [](double sum, uint64_t count) {
    return count == 0 ? Json(nullptr) : Json(sum / static_cast<double>(count));
  };
  Json json;
  json["requests"] = requests_;
  json["scores"] = scores_;
  json["mean_difference"] = rate(sum_, compared_);
  json["mean_absolute_difference"] = rate(sum_absolute_, compared_);
  json["max_absolute_difference"] = compared_ == 0 ? Json(nullptr) : Json(max_absolute_);
  json["rank_correlation"] = rate(sum_correlation_, ranked_);
  json["rank_correlation_requests"] = ranked_;
  json["nan"] = rate(static_cast<double>(nan_), scores_);
  json["infinite"] = rate(static_cast<double>(infinite_), scores_);
  json["errors"] = errors_;
  json["mismatches"] = mismatches_;
  json["compared_requests"] = compared_requests_;
  json["request_difference"] = rate(sum_request_difference_, compared_requests_);
  json["request_difference_squares"] = rate(sum_request_difference_squares_, compared_requests_);
  json["rank_correlation_squares"] = rate(sum_correlation_squares_, ranked_);
  json["live_nan"] = rate(static_cast<double>(live_nan_), scores_);
  json["live_infinite"] = rate(static_cast<double>(live_infinite_), scores_);
  return json;
}

}  // namespace processor
