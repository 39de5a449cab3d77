// SPDX-License-Identifier: Apache-2.0
// Deadlines of requests: points in time that a thread can wait for, and the status of requests that have missed theirs.
#ifndef PROCESSOR_RUNTIME_REQUESTS_DEADLINE_H_
#define PROCESSOR_RUNTIME_REQUESTS_DEADLINE_H_

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "absl/status/status.h"
#include "src/runtime/stats/stats.h"

namespace processor {

/// Converts a deadline in microseconds on CLOCK_MONOTONIC, which is the clock of steady_clock. Callers write INT64_MAX
/// for "never": a time that nanoseconds cannot hold becomes one 292 years away instead of overflowing into the past.
inline std::chrono::steady_clock::time_point DeadlinePoint(int64_t deadline_us) {
  const int64_t clamped = std::clamp<int64_t>(deadline_us, 0, INT64_MAX / 1000);
  return std::chrono::steady_clock::time_point(std::chrono::microseconds(clamped));
}

inline bool IsPast(int64_t deadline_us) { return deadline_us != 0 && NowNs() / 1000 >= deadline_us; }

inline absl::Status DeadlinePassed() {
  return absl::DeadlineExceededError("request: the deadline passed before it was answered");
}

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_REQUESTS_DEADLINE_H_
