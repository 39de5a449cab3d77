// SPDX-License-Identifier: Apache-2.0
// Decides when a thread yields its CPU before a run, so that other threads can send requests for the same batch.
//
// If more threads send requests than there are CPUs, a thread that always finds a free place would run its requests one by
// one until its time slice ends, while other threads are ready to send theirs. So it yields to threads that are ready to
// run; if there are none, it continues at once. If yielding brings no requests or takes long, it is tried rarely.
#ifndef PROCESSOR_RUNTIME_BATCHING_YIELD_POLICY_H_
#define PROCESSOR_RUNTIME_BATCHING_YIELD_POLICY_H_

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace processor {

/// A batcher owns it. Any thread may call all functions; a lost update does no harm.
class YieldPolicy {
 public:
  /// Counts a run. Returns whether its thread may yield if no request waits.
  bool CountRun() noexcept {
    const uint32_t skip = skip_.load(std::memory_order_relaxed);
    if (skip > 0) skip_.store(skip - 1, std::memory_order_relaxed);
    return skip == 0;
  }

  /// Records the cost of a yield and its gain: `requests` that joined the batch because of it.
  void Learn(int64_t taken_ns, int64_t requests) noexcept {
    const int64_t old_gain_ns = gain_ns_.load(std::memory_order_relaxed);
    const int64_t gain_ns = old_gain_ns + (requests * kWorthNs - taken_ns - old_gain_ns) / 8;
    gain_ns_.store(gain_ns, std::memory_order_relaxed);
    const uint32_t backoff = gain_ns >= 0 ? 0 : backoff_.load(std::memory_order_relaxed);
    skip_.store(backoff, std::memory_order_relaxed);
    backoff_.store(std::clamp<uint32_t>(2 * backoff, 1, kMostBackoff), std::memory_order_relaxed);
  }

 private:
  // The time that yielding may cost for each request that joins; about the cost of a separate run.
  static constexpr int64_t kWorthNs = 50'000;
  static constexpr uint32_t kMostBackoff = 512;

  std::atomic<int64_t> gain_ns_{0};   // a moving average
  std::atomic<uint32_t> skip_{0};     // runs that will not yield
  std::atomic<uint32_t> backoff_{1};  // runs that will not yield after the next yield without gain
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_BATCHING_YIELD_POLICY_H_
