// SPDX-License-Identifier: Apache-2.0
// Counts scores of a version that are not finite, which reveals a broken version without mirrored requests.
#ifndef PROCESSOR_HOST_REQUESTS_SCORE_COUNTS_H_
#define PROCESSOR_HOST_REQUESTS_SCORE_COUNTS_H_

#include <atomic>
#include <cstdint>

#include "absl/types/span.h"

namespace processor {

/// Score statistics of one version. Any thread may add and read; VersionStats owns them.
class ScoreCounts {
 public:
  /// How many scores of a response are checked: a fault that makes scores NaN rarely spares the first thousands, and
  /// checking must cost very little.
  static constexpr size_t kMostPerAnswer = 4096;

  /// Adds the scores of one response: the first float output, of any shape.
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
