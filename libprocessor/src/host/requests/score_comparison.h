// SPDX-License-Identifier: Apache-2.0
// How the scores of two versions differ, over many requests: what shadow traffic is for.
#ifndef PROCESSOR_HOST_REQUESTS_SCORE_COMPARISON_H_
#define PROCESSOR_HOST_REQUESTS_SCORE_COMPARISON_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "nlohmann/json.hpp"

namespace processor {

/// Spearman's rank correlation of two rows of scores of one length; equal scores share their mean rank.
/// \return false if it is not defined: fewer than two scores, or one side has but one value.
bool RankCorrelation(absl::Span<const float> a, absl::Span<const float> b, double* correlation);

/// Sums over requests. Not for several threads.
class ScoreComparison {
 public:
  /// Adds one request's scores. If there are not as many on both sides, that is a mismatch and nothing else; what is no
  /// finite number on one side is left out of the differences.
  void Add(absl::Span<const float> live, absl::Span<const float> shadow);
  /// A request that the shadow version failed.
  void AddError() { ++errors_; }

  uint64_t requests() const { return requests_; }

  /// {"requests", "scores", "mean_difference", "mean_absolute_difference", "max_absolute_difference",
  ///  "rank_correlation", "rank_correlation_requests", "nan", "infinite", "errors", "mismatches", "compared_requests",
  ///  "request_difference", "request_difference_squares", "rank_correlation_squares", "live_nan", "live_infinite"}:
  /// `nan` and `infinite` are rates among the shadow's scores, `request_difference` is the mean over requests of the
  /// mean absolute difference, `..._squares` are means of squares; what is not defined yet is null.
  nlohmann::ordered_json Json() const;

 private:
  uint64_t requests_ = 0, scores_ = 0, compared_ = 0, nan_ = 0, infinite_ = 0, errors_ = 0, mismatches_ = 0;
  double sum_ = 0, sum_absolute_ = 0, max_absolute_ = 0;
  uint64_t ranked_ = 0;
  double sum_correlation_ = 0, sum_correlation_squares_ = 0;
  uint64_t compared_requests_ = 0, live_nan_ = 0, live_infinite_ = 0;
  double sum_request_difference_ = 0, sum_request_difference_squares_ = 0;
};

}  // namespace processor

#endif  // PROCESSOR_HOST_REQUESTS_SCORE_COMPARISON_H_
