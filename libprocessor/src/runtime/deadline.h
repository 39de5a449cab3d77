// SPDX-License-Identifier: Apache-2.0
// Deadlines of requests as points in time that a thread can wait for.
#ifndef PROCESSOR_RUNTIME_DEADLINE_H_
#define PROCESSOR_RUNTIME_DEADLINE_H_

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace processor {

/// The point of a deadline in microseconds on CLOCK_MONOTONIC, which is the clock of steady_clock. Callers write
/// INT64_MAX for "never": what nanoseconds cannot hold is 292 years away instead of overflowing into the past.
inline std::chrono::steady_clock::time_point DeadlinePoint(int64_t deadline_us) {
  const int64_t clamped = std::clamp<int64_t>(deadline_us, 0, INT64_MAX / 1000);
  return std::chrono::steady_clock::time_point(std::chrono::microseconds(clamped));
}

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_DEADLINE_H_
