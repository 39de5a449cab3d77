// SPDX-License-Identifier: Apache-2.0
// Requests that wait for an epoch which their version has not reached yet. The follower of the version owns it.
#ifndef PROCESSOR_RUNTIME_FOLLOW_EPOCH_WAITERS_H_
#define PROCESSOR_RUNTIME_FOLLOW_EPOCH_WAITERS_H_

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/status/status.h"

namespace processor {

/// Any thread may call every function. Requests are continued on the calling thread, without the lock.
class EpochWaiters {
 public:
  /// Called once, with OK when the epoch has been reached.
  using Continue = std::function<void(const absl::Status& status)>;

  /// Waits for `epoch`, or continues at once if that has been reached. `until_us`: on CLOCK_MONOTONIC; later the status
  /// is FAILED_PRECONDITION.
  void Wait(int64_t epoch, int64_t until_us, Continue next);

  /// Sets the epoch that new requests see, and continues those that have waited for it. It may go back.
  void Reach(int64_t epoch);
  /// Sets the epoch at which the model is held: requests for later ones do not wait. None: it is not held.
  void SetHeld(std::optional<int64_t> epoch);
  /// Ends the requests whose time has passed, and those for epochs after the one that is held.
  /// \return when the next one has to be ended; INT64_MAX if none waits.
  int64_t Expire(int64_t now_us);
  /// Ends all requests, and each later one that would have to wait, with a status.
  void Stop(const absl::Status& status);

 private:
  struct Waiter {
    int64_t epoch;
    int64_t until_us;
    Continue next;
  };

  bool IsBarred(int64_t epoch) const { return held_.has_value() && epoch > *held_; }
  absl::Status LateStatus(int64_t epoch) const;
  /// Takes out the waiters for which `is_due` holds.
  template <typename IsDue>
  std::vector<Waiter> Take(IsDue&& is_due);

  std::mutex mutex_;
  std::vector<Waiter> waiters_;
  int64_t reached_ = 0;
  std::optional<int64_t> held_;
  absl::Status stopped_;
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_FOLLOW_EPOCH_WAITERS_H_
