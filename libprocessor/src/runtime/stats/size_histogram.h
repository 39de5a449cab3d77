// SPDX-License-Identifier: Apache-2.0
// Counts sizes in powers of two: rows and requests of runs. Any thread may record and read at any time; a reader may
// miss values that are being recorded.
#ifndef PROCESSOR_RUNTIME_STATS_SIZE_HISTOGRAM_H_
#define PROCESSOR_RUNTIME_STATS_SIZE_HISTOGRAM_H_

#include <array>
#include <atomic>
#include <cstdint>

#include "nlohmann/json.hpp"

namespace processor {

class SizeHistogram {
 public:
  /// Bucket i holds sizes above 2^(i-1) up to 2^i; the last one holds all larger sizes.
  static constexpr int kBuckets = 18;

  void Record(int64_t size) {
    const int bits = size <= 1 ? 0 : 64 - __builtin_clzll(static_cast<uint64_t>(size - 1));
    counts_[bits < kBuckets ? bits : kBuckets - 1].fetch_add(1, std::memory_order_relaxed);
    sum_.fetch_add(static_cast<uint64_t>(size), std::memory_order_relaxed);
    int64_t max = max_.load(std::memory_order_relaxed);
    while (size > max && !max_.compare_exchange_weak(max, size, std::memory_order_relaxed)) {
    }
  }

  uint64_t count(int bucket) const { return counts_[bucket].load(std::memory_order_relaxed); }
  uint64_t sum() const { return sum_.load(std::memory_order_relaxed); }

  /// Returns {"count", "mean", "max", "buckets"}, where `buckets` maps the largest size of each bucket that is not
  /// empty to its count.
  nlohmann::ordered_json Json() const {
    nlohmann::ordered_json buckets = nlohmann::ordered_json::object();
    uint64_t all = 0;
    for (int i = 0; i < kBuckets; ++i) {
      const uint64_t n = count(i);
      if (n > 0) buckets[i + 1 < kBuckets ? std::to_string(int64_t{1} << i) : "more"] = n;
      all += n;
    }
    return {{"count", all},
            {"mean", all == 0 ? 0.0 : static_cast<double>(sum()) / static_cast<double>(all)},
            {"max", max_.load(std::memory_order_relaxed)},
            {"buckets", buckets}};
  }

 private:
  std::array<std::atomic<uint64_t>, kBuckets> counts_{};
  std::atomic<uint64_t> sum_{0};
  std::atomic<int64_t> max_{0};
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_STATS_SIZE_HISTOGRAM_H_
