// SPDX-License-Identifier: Apache-2.0
// How fast one core reads memory of a given size over and over: a floor for any request that reads weights of that size.
#ifndef PROCESSOR_BENCH_READ_FLOOR_H_
#define PROCESSOR_BENCH_READ_FLOOR_H_

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace processor::bench {

/// Microseconds that this thread needs to read `bytes` that it has read before: best of 50 passes.
inline double ReadFloor(size_t bytes) {
  constexpr size_t kLanes = 16;
  const std::vector<uint64_t> words(bytes / sizeof(uint64_t) / kLanes * kLanes, 1);
  double best_us = 1e18;
  for (int pass = 0; pass < 50; ++pass) {
    const auto before = std::chrono::steady_clock::now();
    std::array<uint64_t, kLanes> sums{};
    for (size_t i = 0; i < words.size(); i += kLanes) {
      for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += words[i + lane];
    }
    volatile uint64_t sum = 0;  // keeps the reads
    for (const uint64_t lane : sums) sum = sum + lane;
    const std::chrono::duration<double, std::micro> passed = std::chrono::steady_clock::now() - before;
    best_us = std::min(best_us, passed.count());
  }
  return best_us;
}

}  // namespace processor::bench

#endif  // PROCESSOR_BENCH_READ_FLOOR_H_
