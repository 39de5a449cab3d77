// SPDX-License-Identifier: Apache-2.0
// Admission of requests to a model or a host, which owns the gate. The gate counts the admitted requests, refuses new
// ones once its owner drains or has been freed, and lets a thread wait until the last one has left.
#ifndef PROCESSOR_RUNTIME_REQUESTS_REQUEST_GATE_H_
#define PROCESSOR_RUNTIME_REQUESTS_REQUEST_GATE_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string_view>

#include "absl/status/status.h"

namespace processor {

/// Every function may be called from any thread. Entering and leaving take no lock while the gate is open.
class RequestGate {
 public:
  enum class State { kServing, kDraining, kClosed };

  /// `owner` and `expected` are words for messages, as in "model" and "one that is loaded". They must outlive the gate.
  RequestGate(std::string_view owner, std::string_view expected) : owner_(owner), expected_(expected) {}

  State state() const { return state_.load(); }
  /// Why a gate in that state refuses requests: UNAVAILABLE, FAILED_PRECONDITION, or OK while it serves.
  absl::Status Refusal(State state) const;

  /// Counts a request as admitted if the gate is open.
  /// \return as Refusal(); the request is then not counted.
  absl::Status Admit();
  /// Enters in any case.
  void Enter() { in_flight_.fetch_add(1); }
  void Leave() noexcept;

  /// Enters in any case, and leaves when the scope ends.
  class Visit {
   public:
    explicit Visit(RequestGate* gate) : gate_(*gate) { gate_.Enter(); }
    ~Visit() { gate_.Leave(); }
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;

   private:
    RequestGate& gate_;
  };

  int64_t in_flight() const { return in_flight_.load(); }

  /// Refuses requests from now on.
  /// \return FAILED_PRECONDITION if the gate has been closed.
  absl::Status BeginDrain();
  /// Waits until the last request has left. `deadline_us`: on CLOCK_MONOTONIC; 0: no limit.
  /// \return DEADLINE_EXCEEDED.
  absl::Status WaitUntilIdle(int64_t deadline_us);
  /// Waits until the last request has left, or until `seconds` have passed.
  void WaitUntilIdleFor(double seconds);

  /// Refuses requests permanently.
  /// \return the state before.
  State Close() noexcept { return state_.exchange(State::kClosed); }

 private:
  const std::string_view owner_, expected_;
  std::atomic<State> state_{State::kServing};
  std::atomic<int64_t> in_flight_{0};
  std::mutex mutex_;
  std::condition_variable idle_;
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_REQUESTS_REQUEST_GATE_H_
