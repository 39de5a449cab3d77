// SPDX-License-Identifier: Apache-2.0
// Statistics of a session's requests. The slot of the session owns them; any thread may record and read.
#ifndef PROCESSOR_RUNTIME_STATS_STATS_H_
#define PROCESSOR_RUNTIME_STATS_STATS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"
#include "src/runtime/stats/histogram.h"

namespace processor {

constexpr int64_t kSecondNs = 1'000'000'000;

/// Returns the time in nanoseconds on CLOCK_MONOTONIC.
int64_t NowNs();
/// Returns the time in microseconds since 1970 (UTC).
int64_t UnixUs();
/// Returns the time as in "2026-01-31T23:59:59Z".
std::string WallClockText();

/// Where the time of one request went, in nanoseconds, and which session and version ran it.
struct RequestTiming {
  int session = -1;
  int64_t model_version = -1;
  uint64_t generation = 0;
  int64_t queue_ns = 0;
  int64_t decode_ns = 0;
  int64_t run_ns = 0;
  int64_t encode_ns = 0;
  int64_t total_ns = 0;
  int64_t batch_rows = 0;  // rows of the batch that it ran in; 0 if it ran alone
  int64_t epoch = -1;      // of the timeline that the version follows; -1: none
  int64_t knows_us = 0;    // time of what the epoch knows, in microseconds since 1970; 0: not known
};

class SessionStats {
 public:
  void Record(absl::StatusCode code, const RequestTiming& timing);

  /// Adds the keys of processor_model_stats() that concern latencies and responses.
  static void Describe(const std::vector<const SessionStats*>& sessions, nlohmann::json* dst);

 private:
  static constexpr int kCodes = 17;
  std::array<std::atomic<uint64_t>, kCodes> responses_{};
  Histogram latency_, queue_, run_, overhead_;
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_STATS_STATS_H_
