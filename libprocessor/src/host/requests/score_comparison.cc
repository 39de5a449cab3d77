// SPDX-License-Identifier: Apache-2.0
#include "src/host/requests/score_comparison.h"

#include <algorithm>
#include <cmath>

#include "src/base/rank_correlation.h"

namespace processor {

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
