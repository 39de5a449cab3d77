// SPDX-License-Identifier: Apache-2.0
// Compares the scores of two versions over many mirrored requests.
#ifndef PROCESSOR_HOST_REQUESTS_SCORE_COMPARISON_H_
#define PROCESSOR_HOST_REQUESTS_SCORE_COMPARISON_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "nlohmann/json.hpp"

namespace processor {

/// Sums over requests. For one thread at a time; the shadow lane owns it.
class ScoreComparison {
 public:
  /// Adds the scores of one request. If the sides differ in their number of scores, only a mismatch is counted. A score
  /// that is not finite on one side is left out of the differences.
  void Add(absl::Span<const float> live, absl::Span<const float> shadow);
  /// Counts a request that the shadow version failed.
  void AddError() { ++errors_; }

  uint64_t requests() const { return requests_; }

  /// {"requests", "scores", "mean_difference", "mean_absolute_difference", "max_absolute_difference",
  ///  "rank_correlation", "rank_correlation_requests", "nan", "infinite", "errors", "mismatches", "compared_requests",
  ///  "request_difference", "request_difference_squares", "rank_correlation_squares", "live_nan", "live_infinite"}:
  /// `nan` and `infinite` are rates among the shadow's scores, `request_difference` is the mean over requests of the
  /// mean absolute difference, `..._squares` are means of squares; a value that is not defined yet is null.
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
