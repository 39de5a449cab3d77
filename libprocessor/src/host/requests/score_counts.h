// SPDX-License-Identifier: Apache-2.0
// How many scores of a version's answers are no numbers: what tells a broken version without shadow traffic.
#ifndef PROCESSOR_HOST_REQUESTS_SCORE_COUNTS_H_
#define PROCESSOR_HOST_REQUESTS_SCORE_COUNTS_H_

#include <atomic>
#include <cstdint>

#include "absl/types/span.h"

namespace processor {

/// Counts of one version, for several threads.
class ScoreCounts {
 public:
  /// Looked at in an answer: what makes one score NaN seldom spares the first thousands, and a look must cost nothing.
  static constexpr size_t kMostPerAnswer = 4096;

  /// Adds the scores of one answer, [rows × 1] or whatever the first float output holds.
  void Add(absl::Span<const float> scores);

  uint64_t answers() const { return answers_.load(std::memory_order_relaxed); }
  uint64_t scores() const { return scores_.load(std::memory_order_relaxed); }
  uint64_t nan() const { return nan_.load(std::memory_order_relaxed); }
  uint64_t infinite() const { return infinite_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> answers_{0}, scores_{0}, nan_{0}, infinite_{0};
};

}  // namespace processor

#endif  // PROCESSOR_HOST_REQUESTS_SCORE_COUNTS_H_
