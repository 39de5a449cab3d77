// SPDX-License-Identifier: Apache-2.0
// Clocks, ranks and turns: what every measurement needs.
#ifndef PROCESSOR_BENCH_TIMING_H_
#define PROCESSOR_BENCH_TIMING_H_

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

namespace processor::bench {

using Clock = std::chrono::steady_clock;

inline double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

/// User and system time of the whole process so far [s].
inline double CpuSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) { return static_cast<double>(time.tv_sec) + 1e-6 * time.tv_usec; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// Nearest rank: the smallest value that at least `share` of all do not exceed. `sorted` is not empty.
template <typename T>
T Percentile(const std::vector<T>& sorted, double share) {
  const auto rank = static_cast<size_t>(share * static_cast<double>(sorted.size()) + 0.999999);
  return sorted[std::clamp<size_t>(rank, 1, sorted.size()) - 1];
}

/// Measures every contestant `rounds` times. They take turns, so that a change of the machine's speed hits all of them.
template <typename Contestants, typename MeasureTurn>
void TakeTurns(size_t rounds, Contestants* contestants, const MeasureTurn& measure_turn) {
  for (size_t round = 0; round < rounds; ++round) {
    for (auto& contestant : *contestants) measure_turn(&contestant);
  }
}

}  // namespace processor::bench

#endif  // PROCESSOR_BENCH_TIMING_H_
