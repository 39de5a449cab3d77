// SPDX-License-Identifier: Apache-2.0
// Follows the timeline of a live model: applies each segment as soon as it is published, on a thread of its own.
//
// The model owns it. A segment that cannot be applied is refused, and the epoch before it goes on serving; the follower
// tries again when the folder changes.
#ifndef PROCESSOR_RUNTIME_FOLLOW_DELTA_FOLLOWER_H_
#define PROCESSOR_RUNTIME_FOLLOW_DELTA_FOLLOWER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"
#include "src/live/live_model.h"
#include "src/runtime/follow/epoch_waiters.h"
#include "src/runtime/follow/folder_watch.h"
#include "src/runtime/follow/precision_state.h"
#include "src/runtime/follow/segment_store.h"
#include "src/runtime/requests/cancellation.h"
#include "src/tables/delta_timeline.h"
#include "tensorflow/core/platform/refcount.h"

namespace processor {

/// What a model has read of its timeline.
struct FollowState {
  std::string timeline;
  LiveModel::Status live;
  uint64_t refused = 0;     // segments and other faults, each counted once until another outcome
  std::string error;        // of the last attempt; empty if it succeeded
  int64_t applied_us = 0;   // when the newest epoch was served first, in microseconds since 1970; 0: none was applied
  std::string store;        // the folder of the copies of applied segments; empty: none are kept
  uint64_t kept_epoch = 0;  // up to which there are copies
  std::string store_error;  // why the newest copy could not be kept; empty if it was
  std::optional<PrecisionState> precision;  // none: the model has no towers

  /// For processor_model_info() and the files of a host.
  nlohmann::ordered_json Json() const;
};

/// What a model follows.
struct FollowOptions {
  std::string timeline;
  std::string store;  // below which copies of applied segments are kept; empty: none are
  std::string model;  // for the log
  bool permit_not_finite = false;
};

/// Any thread may call every function, except Start() and Stop(), which the owner calls once each.
class DeltaFollower {
 public:
  DeltaFollower(const FollowOptions& options, tensorflow::core::RefCountPtr<LiveModel> live);
  ~DeltaFollower();
  DeltaFollower(const DeltaFollower&) = delete;
  DeltaFollower& operator=(const DeltaFollower&) = delete;

  /// Calls a function again and again on the thread that follows, five times a second or more often. To be set before
  /// Start().
  void OnEachTurn(std::function<void()> turn) { each_turn_ = std::move(turn); }

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
  /// FollowState::error
  std::string error() const;

 private:
  void Follow();
  /// Applies what has been published, goes to the epoch to hold, and reports what failed. `cancellation`: may be null.
  void CatchUp(const Cancellation* cancellation);
  std::optional<int64_t> wanted() const;
  /// Applies segments until there is none, the held epoch is reached, or one fails.
  /// \return the status of the one that failed.
  absl::Status ApplyPublished(const Cancellation* cancellation);
  absl::Status ApplyNext(const Cancellation* cancellation, bool* applied);
  /// Opens the segment that follows a position and ends with epoch `most` or before, in the timeline, or else in the store;
  /// null if there is none. \return what is wrong with the timeline, even if the store has the segment.
  absl::Status FindNext(const TimelinePosition& position, uint64_t most, std::unique_ptr<const DeltaSegment>* segment,
                        bool* published) const;
  /// Applies a segment, of which the store gets a copy first: a process that ends in between comes back to its epoch.
  /// `give_up`: as for LiveModel::Apply().
  absl::Status ApplyKept(const DeltaSegment& segment, bool published, const std::function<bool()>& give_up);
  /// Keeps what could not be kept before, and replaces what compacted segments have.
  absl::Status CompleteStore();
  absl::Status GoToHeldEpoch(const LiveModel::Epochs& epochs);
  void Report(const absl::Status& status, const absl::Status& stored);
  std::string Shown(const std::string& error) const;

  const std::string model_;
  const DeltaTimeline timeline_;
  const tensorflow::core::RefCountPtr<LiveModel> live_;
  const std::shared_ptr<SegmentStore> store_;  // null: no copies are kept
  TimelinePosition kept_;                      // up to which the store has all segments; of the thread, or of Start()
  FolderWatch watch_;
  EpochWaiters waiters_;
  std::function<void()> each_turn_;
  std::thread thread_;

  mutable std::mutex mutex_;  // of what follows
  bool stopped_ = false;
  std::optional<int64_t> wanted_;  // the epoch to hold
  std::string error_;              // of the last attempt; empty if it succeeded
  uint64_t refused_ = 0;           // as in FollowState, as is the next
  int64_t applied_us_ = 0;
  uint64_t kept_epoch_ = 0;
  std::string store_error_;
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_FOLLOW_DELTA_FOLLOWER_H_
