// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/stats/stats.h"

#include <time.h>

namespace processor {

int64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{1000000000} * now.tv_sec + now.tv_nsec;
}

int64_t UnixUs() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

std::string WallClockText() {
  const time_t now = time(nullptr);
  tm parts;
  gmtime_r(&now, &parts);
  char text[32];
  strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

void SessionStats::Record(absl::StatusCode code, const RequestTiming& timing) {
  const int index = static_cast<int>(code);
  responses_[index >= 0 && index < kCodes ? index : static_cast<int>(absl::StatusCode::kUnknown)].fetch_add(
      1, std::memory_order_relaxed);
  latency_.Record(timing.total_ns);
  queue_.Record(timing.queue_ns);
  // Refused requests would lower the run time.
  if (timing.run_ns > 0) {
    run_.Record(timing.run_ns);
    overhead_.Record(timing.total_ns - timing.run_ns - timing.queue_ns);
  }
}

void SessionStats::Describe(const std::vector<const SessionStats*>& sessions, nlohmann::json* dst) {
  uint64_t requests = 0;
  nlohmann::json responses = nlohmann::json::object();
  for (int code = 0; code < kCodes; ++code) {
    uint64_t n = 0;
    for (const SessionStats* session : sessions) n += session->responses_[code].load(std::memory_order_relaxed);
    if (n > 0) responses[absl::StatusCodeToString(static_cast<absl::StatusCode>(code))] = n;
    requests += n;
  }
  (*dst)["requests"] = requests;
  (*dst)["responses"] = responses;
  const auto summary = [&](Histogram SessionStats::* member) {
    std::vector<const Histogram*> histograms;
    for (const SessionStats* session : sessions) histograms.push_back(&(session->*member));
    return Histogram::SummaryUs(histograms);
  };
  (*dst)["latency_us"] = summary(&SessionStats::latency_);
  (*dst)["queue_us"] = summary(&SessionStats::queue_);
  (*dst)["run_us"] = summary(&SessionStats::run_);
  (*dst)["overhead_us"] = summary(&SessionStats::overhead_);
}

}  // namespace processor
