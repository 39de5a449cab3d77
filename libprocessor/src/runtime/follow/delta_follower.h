// SPDX-License-Identifier: Apache-2.0
// Follows the timeline of a live model: applies each segment as soon as it is published, on a thread of its own.
//
// The model owns it. A segment that cannot be applied is refused, and the epoch before it goes on serving; the follower
// tries again when the folder changes.
#ifndef PROCESSOR_RUNTIME_FOLLOW_DELTA_FOLLOWER_H_
#define PROCESSOR_RUNTIME_FOLLOW_DELTA_FOLLOWER_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"
#include "src/live/live_model.h"
#include "src/runtime/follow/epoch_waiters.h"
#include "src/runtime/follow/folder_watch.h"
#include "src/runtime/requests/cancellation.h"
#include "src/tables/delta_timeline.h"
#include "tensorflow/core/platform/refcount.h"

namespace processor {

/// What a model has read of its timeline.
struct FollowState {
  std::string timeline;
  LiveModel::Status live;
  uint64_t refused = 0;    // segments and other faults, each counted once until another outcome
  std::string error;       // of the last attempt; empty if it succeeded
  int64_t applied_us = 0;  // when the newest epoch was served first, in microseconds since 1970; 0: none was applied

  /// For processor_model_info() and the files of a host.
  nlohmann::ordered_json Json() const;
};

/// Any thread may call every function, except Start() and Stop(), which the owner calls once each.
class DeltaFollower {
 public:
  /// `folder`: of the timeline.
  DeltaFollower(std::string folder, tensorflow::core::RefCountPtr<LiveModel> live);
  ~DeltaFollower() { Stop(absl::CancelledError("request: the model was freed while it waited")); }
  DeltaFollower(const DeltaFollower&) = delete;
  DeltaFollower& operator=(const DeltaFollower&) = delete;

  /// Applies what has been published, up to the epoch that Hold() has set, and then follows. A segment that fails does not
  /// prevent the model from serving. `cancellation`: of the load of the model.
  /// \return why the load was canceled, or RESOURCE_EXHAUSTED without a thread.
  absl::Status Start(const Cancellation& cancellation);
  /// Ends the thread, and the requests that wait.
  void Stop(const absl::Status& status) noexcept;

  /// Serves an epoch and stays there; none: follows again. An epoch that has not been reached is reached first.
  void Hold(std::optional<int64_t> epoch);

  /// Continues a request once an epoch is served; see EpochWaiters::Wait(). `deadline_us`: of the request, or 0. A request
  /// ends shortly before that, or after 10 s.
  void WaitFor(int64_t epoch, int64_t deadline_us, EpochWaiters::Continue next);

  FollowState state() const;

 private:
  void Follow();
  /// Applies what has been published, goes to the epoch to hold, and reports what failed. `cancellation`: may be null.
  void CatchUp(const Cancellation* cancellation);
  std::optional<int64_t> wanted() const;
  /// Applies segments until there is none, the held epoch is reached, or one fails.
  /// \return the status of the one that failed.
  absl::Status ApplyPublished(const Cancellation* cancellation);
  absl::Status ApplyNext(bool* applied);
  absl::Status GoToHeldEpoch();
  void Report(const absl::Status& status);

  const DeltaTimeline timeline_;
  const tensorflow::core::RefCountPtr<LiveModel> live_;
  FolderWatch watch_;
  EpochWaiters waiters_;
  std::thread thread_;

  mutable std::mutex mutex_;  // of what follows
  bool stopped_ = false;
  std::optional<int64_t> wanted_;  // the epoch to hold
  std::string error_;              // of the last attempt; empty if it succeeded
  uint64_t refused_ = 0;           // as in FollowState, as is the next
  int64_t applied_us_ = 0;
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_FOLLOW_DELTA_FOLLOWER_H_
