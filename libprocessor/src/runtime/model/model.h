// SPDX-License-Identifier: Apache-2.0
// A loaded model, which owns its versions, the slots that its sessions run in, and the two ways of running requests: one by
// one, and in batches.
//
// Requests come from any thread. Each takes the current version, holds it to its end, and runs on the thread of its
// caller or on one of a session's slot. docs/architecture.md says which state each part owns, and which lock guards it.
#ifndef PROCESSOR_RUNTIME_MODEL_MODEL_H_
#define PROCESSOR_RUNTIME_MODEL_MODEL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "src/runtime/batching/batch_stats.h"
#include "src/runtime/follow/delta_follower.h"
#include "src/runtime/follow/precision_watch.h"
#include "src/runtime/model/batched_requests.h"
#include "src/runtime/model/model_parts.h"
#include "src/runtime/model/unbatched_requests.h"
#include "src/runtime/model/work.h"

namespace processor {

/// Every function may be called from any thread.
class Model {
 public:
  /// Loads a model and warms it up. `base_dir` is where relative paths of the configuration begin; it may be empty.
  /// `progress`: may be null.
  static absl::Status Load(ModelConfig config, const std::string& base_dir, std::shared_ptr<Model>* model,
                           std::shared_ptr<LoadProgress> progress = nullptr);
  ~Model() { Close(); }

  /// Runs a request and waits for it.
  absl::Status Run(Work& work);
  /// Starts a request. `preferred_session`: -1, or where to queue it (modulo the number of sessions). `id`: for
  /// Cancel(); may be null.
  /// \return why it was not accepted; Done() is not called then.
  absl::Status Start(std::shared_ptr<AsyncWork> work, int preferred_session, uint64_t* id);

  /// Ends an asynchronous request with `status` at once; if it is running, its work stops at the next kernel.
  /// \return NOT_FOUND if it has ended.
  absl::Status Cancel(uint64_t id, const absl::Status& status);
  /// Ends all requests. A request whose caller waits ends when its work has stopped.
  void StopRequests(const absl::Status& status) noexcept;

  /// Refuses new requests, and waits until the last one has ended. `deadline_us`: on CLOCK_MONOTONIC; 0: no limit.
  absl::Status Drain(int64_t deadline_us);
  /// Refuses new requests and cancels waiting ones. Running ones continue.
  void Refuse() noexcept;
  /// Calls Refuse(), waits `drain_seconds` for running requests unless Drain() or StopRequests() has been called,
  /// cancels the remaining ones, and unloads.
  void Close() noexcept;

  /// Moves the sessions to CPUs, as SessionSlots::SetCpuset() does.
  /// \return as RequestGate::Admit(), among others.
  absl::Status SetCpuset(std::string_view cpuset);
  /// Sets where requests run from now on; overrides the configuration.
  void SetExecution(Execution execution) { execution_.store(execution); }
  Execution execution() const { return execution_.load(); }
  void SetBatching(const BatchOptions& options) { batched_.SetOptions(options); }
  BatchOptions batching() const { return batched_.options(); }

  /// Holds the model at an epoch of its timeline; none: it follows the newest. Does nothing without a timeline.
  void HoldEpoch(std::optional<int64_t> epoch);
  /// The state of following a timeline; none without one.
  std::optional<FollowState> following() const;
  /// Why the last attempt to follow failed; empty if it succeeded, and without a timeline.
  std::string FollowError() const { return follower_ == nullptr ? "" : follower_->error(); }

  /// Whether the work of a request is bounded by its size, because the graph has no loops.
  bool IsBounded() const { return parts_.versions.bounded(); }
  /// The version that new requests use; null once the model is closed.
  std::shared_ptr<ModelVersion> version() const { return parts_.versions.current(); }
  const ModelConfig& config() const { return parts_.config; }
  const SessionSlots& slots() const { return parts_.slots; }
  const BatchStats& batch_stats() const { return batched_.stats(); }
  /// The number of requests that wait for a session.
  size_t queued() const { return batched_.waiting() + parts_.slots.queued(); }

  std::string InfoJson() const;
  std::string SignaturesJson() const;
  /// The default signature in the form of the drop-in contract.
  std::string DropInSignatureJson() const;
  std::string StatsJson() const;

 private:
  Model(ModelConfig config, std::string base_dir, std::shared_ptr<LoadProgress> progress);

  /// Begins to follow the timeline of the configuration, if there is one.
  absl::Status StartFollowing();
  /// Waits for the epoch that a request asks for.
  absl::Status WaitForEpoch(const Work& work);
  absl::Status StartAtEpoch(Admission& admission, std::shared_ptr<AsyncWork> work, int session, int64_t start_ns);
  absl::Status RunAdmitted(Admission& admission, Work& work, int64_t start_ns);
  /// `start_ns`: when the request came.
  absl::Status RunPinned(Admission& admission, Work& work, int session, int64_t start_ns);
  absl::Status StartAdmitted(Admission& admission, std::shared_ptr<AsyncWork> work, int session, int64_t start_ns,
                             uint64_t* id);

  ModelParts parts_;
  UnbatchedRequests unbatched_{&parts_};
  BatchedRequests batched_{&parts_};
  std::unique_ptr<DeltaFollower> follower_;          // null: the model follows no timeline
  std::unique_ptr<PrecisionWatch> precision_watch_;  // null: or it has no towers; the follower's thread uses it
  std::atomic<Execution> execution_;
  std::atomic<bool> drained_{false};  // Close() does not wait for running requests
  std::atomic<bool> closed_{false};
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_MODEL_MODEL_H_
