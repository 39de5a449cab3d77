// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/stats/histogram.h"

#include <algorithm>
#include <cmath>

namespace processor {

int Histogram::Bucket(uint64_t value) {
  constexpr uint64_t kSub = uint64_t{1} << kSubBits;
  if (value < kSub) return static_cast<int>(value);
  const int octave = 63 - __builtin_clzll(value) - kSubBits;  // 0 for [32, 64)
  const int bucket = ((octave + 1) << kSubBits) + static_cast<int>((value >> octave) - kSub);
  return std::min(bucket, kBuckets - 1);
}

double Histogram::BucketMiddle(int bucket) {
  constexpr int kSub = 1 << kSubBits;
  if (bucket < kSub) return bucket;
  const int octave = (bucket >> kSubBits) - 1;
  return std::ldexp(kSub + (bucket & (kSub - 1)) + 0.5, octave);
}

void Histogram::Record(int64_t value) {
  value = std::max<int64_t>(value, 0);
  counts_[Bucket(static_cast<uint64_t>(value))].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
  int64_t max = max_.load(std::memory_order_relaxed);
  while (value > max && !max_.compare_exchange_weak(max, value, std::memory_order_relaxed)) {
  }
}

Histogram::Cumulative Histogram::Below(const std::vector<int64_t>& bounds) const {
  Cumulative result;
  uint64_t count = 0;
  size_t bound = 0;
  for (int i = 0; i < kBuckets; ++i) {
    for (; bound < bounds.size() && BucketMiddle(i) > static_cast<double>(bounds[bound]); ++bound) {
      result.counts.push_back(count);
    }
    count += counts_[i].load(std::memory_order_relaxed);
  }
  result.counts.resize(bounds.size() + 1, count);
  result.sum = sum_.load(std::memory_order_relaxed);
  return result;
}

nlohmann::json Histogram::SummaryUs(const std::vector<const Histogram*>& histograms) {
  std::vector<uint64_t> counts(kBuckets, 0);
  uint64_t count = 0;
  int64_t sum = 0, max = 0;
  for (const Histogram* histogram : histograms) {
    for (int i = 0; i < kBuckets; ++i) {
      const uint64_t n = histogram->counts_[i].load(std::memory_order_relaxed);
      counts[i] += n;
      count += n;
    }
    sum += histogram->sum_.load(std::memory_order_relaxed);
    max = std::max(max, histogram->max_.load(std::memory_order_relaxed));
  }
  const auto us = [](double ns) { return std::round(ns) / 1000.0; };
  const auto percentile = [&](double fraction) {
    const uint64_t rank =
        std::max<uint64_t>(1, static_cast<uint64_t>(std::ceil(fraction * static_cast<double>(count))));
    uint64_t seen = 0;
    for (int i = 0; i < kBuckets; ++i) {
      seen += counts[i];
      if (seen >= rank) return us(std::min(BucketMiddle(i), static_cast<double>(max)));
    }
    return us(static_cast<double>(max));
  };
  if (count == 0) {
    return {{"count", 0}, {"mean", 0.0}, {"p50", 0.0}, {"p95", 0.0}, {"p99", 0.0}, {"p99.9", 0.0}, {"max", 0.0}};
  }
  return {{"count", count},
          {"mean", us(static_cast<double>(sum) / static_cast<double>(count))},
          {"p50", percentile(0.50)},
          {"p95", percentile(0.95)},
          {"p99", percentile(0.99)},
          {"p99.9", percentile(0.999)},
          {"max", us(static_cast<double>(max))}};
}

}  // namespace processor
