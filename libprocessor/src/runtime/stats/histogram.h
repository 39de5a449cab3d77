// SPDX-License-Identifier: Apache-2.0
// Counts latencies in buckets that are at most 1/32 (3 %) wide. Any thread may record and read at any time, without a
// lock; a reader may miss values that are being recorded.
#ifndef PROCESSOR_RUNTIME_STATS_HISTOGRAM_H_
#define PROCESSOR_RUNTIME_STATS_HISTOGRAM_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "nlohmann/json.hpp"

namespace processor {

class Histogram {
 public:
  /// Counts a value in nanoseconds; a negative one counts as 0.
  void Record(int64_t value);

  /// A histogram as Prometheus has it: `counts` [bounds + 1] says how many values were at most each of the rising
  /// `bounds`, then how many there were in all.
  struct Cumulative {
    std::vector<uint64_t> counts;
    int64_t sum = 0;
  };
  Cumulative Below(const std::vector<int64_t>& bounds) const;

  /// Returns {"count", "mean", "p50", "p95", "p99", "p99.9", "max"} of several histograms taken as one, in
  /// microseconds.
  static nlohmann::json SummaryUs(const std::vector<const Histogram*>& histograms);

 private:
  static constexpr int kSubBits = 5;   // 32 buckets per power of two
  static constexpr int kMaxBits = 42;  // beyond 2^42 ns (73 minutes) all is one bucket
  static constexpr int kBuckets = (kMaxBits - kSubBits + 1) << kSubBits;

  static int Bucket(uint64_t value);
  static double BucketMiddle(int bucket);

  std::array<std::atomic<uint64_t>, kBuckets> counts_{};
  std::atomic<int64_t> sum_{0};
  std::atomic<int64_t> max_{0};
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_STATS_HISTOGRAM_H_
