// SPDX-License-Identifier: Apache-2.0
// Checks, while a model follows a timeline, whether the precision that its certificate permitted is still right for its new
// rows and weights. If it is not, the model computes in more precise arithmetic until it is loaded again.
//
// A check runs on a thread of its own in idle time. All else is done by the thread that calls Turn(), because requests and
// the next epoch may wait for its locks.
#ifndef PROCESSOR_RUNTIME_FOLLOW_PRECISION_WATCH_H_
#define PROCESSOR_RUNTIME_FOLLOW_PRECISION_WATCH_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "src/runtime/follow/precision_state.h"
#include "src/runtime/follow/precision_trial.h"
#include "src/runtime/requests/cancellation.h"
#include "src/runtime/threads/thread_starter.h"
#include "src/runtime/version/model_version.h"

namespace processor {

/// The model owns it.
class PrecisionWatch {
 public:
  /// `name`: of the model, for messages. The version must be live and have towers.
  PrecisionWatch(std::string name, std::shared_ptr<ModelVersion> version);
  ~PrecisionWatch() { Stop(); }
  PrecisionWatch(const PrecisionWatch&) = delete;
  PrecisionWatch& operator=(const PrecisionWatch&) = delete;

  /// Takes over the outcome of a check that has ended, and begins to check the epoch that is served, if it is a new one and
  /// the last check is long enough ago. To be called again and again, by one thread.
  void Turn();
  /// Ends a check that runs. No Turn() may be called afterwards, nor run meanwhile.
  void Stop() noexcept;

  /// Any thread may call.
  PrecisionState state() const;

 private:
  // A check that runs, or has ended and was not looked at yet.
  struct Check {
    int64_t epoch = 0;
    int64_t begin_ns = 0;
    PrecisionTrial trial;
    Cancellation cancellation;
    ThreadStarter starter;  // its thread has the usual scheduling
    absl::Status status;
    TrialOutcome outcome;
    std::atomic<bool> ended{false};
    std::thread thread;
  };

  void Begin(const PinnedEpoch& epoch);
  static void Run(Check& check) noexcept;
  void Conclude(const Check& check);
  void FallBack(const Check& check);

  const std::string name_;
  const std::shared_ptr<ModelVersion> version_;
  // Of the thread that calls Turn():
  std::unique_ptr<Check> check_;
  int64_t checked_epoch_;
  int64_t next_ns_ = 0;

  mutable std::mutex mutex_;  // of state_
  PrecisionState state_;
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_FOLLOW_PRECISION_WATCH_H_
