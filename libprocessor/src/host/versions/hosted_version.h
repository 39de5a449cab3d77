// SPDX-License-Identifier: Apache-2.0
// One loaded version of a model in a host. It owns the runtime's model and the counters for admission.
//
// Its instance, the route tables and requests share it. It is unloaded once the instance has the only reference: then
// no request uses it, and none can begin to.
#ifndef PROCESSOR_HOST_VERSIONS_HOSTED_VERSION_H_
#define PROCESSOR_HOST_VERSIONS_HOSTED_VERSION_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "src/host/desired/desired_state.h"
#include "src/host/versions/memory_budget.h"
#include "src/host/versions/standing_queue.h"
#include "src/runtime/model/model.h"

namespace processor {

/// Counters of a version for admission. They may outlive the version; any thread may use them.
struct VersionLoad {
  std::atomic<int64_t> in_flight{0};  // requests that wait or run
  std::atomic<int64_t> recent_run_ns{0};
  StandingQueue more_important;  // the queue of more important versions, as requests of this one found it

  /// Updates the moving average of run times.
  void AddRun(int64_t run_ns) {
    const int64_t recent = recent_run_ns.load(std::memory_order_relaxed);
    recent_run_ns.store(recent == 0 ? run_ns : recent + (run_ns - recent) / 8, std::memory_order_relaxed);
  }
};

/// The name and the folder of a version, which its host chooses.
struct HostedPlace {
  std::string name;         // of the version, in the log
  std::string delta_store;  // the folder for copies of deltas
};

/// Every function may be called from any thread.
class HostedVersion {
 public:
  /// Loads a version and warms it up. Settings that this does not read from `wanted` can be changed later.
  static absl::Status Load(const DesiredVersion& wanted, int64_t number, const HostedPlace& place,
                           std::shared_ptr<LoadProgress> progress, std::unique_ptr<HostedVersion>* version);

  /// Moves the sessions to CPUs, written as in the key `cpusets` or as one group for all sessions; "" stands for all
  /// CPUs. Requests run on threads of the sessions while these have CPUs of their own, unless the configuration says
  /// where they run.
  absl::Status SetCpuset(const std::string& cpuset);

  /// Sets how requests are batched from now on.
  void SetBatching(const BatchOptions& options) { model_->SetBatching(options); }
  /// Holds the version at an epoch of its timeline; none: it follows the newest.
  void HoldEpoch(std::optional<int64_t> epoch) { model_->HoldEpoch(epoch); }
  BatchOptions batching() const { return model_->batching(); }

  Model& model() const { return *model_; }
  VersionLoad& load() const { return *load_; }
  std::shared_ptr<VersionLoad> shared_load() const { return load_; }
  int sessions() const { return model_->config().session_num; }

  /// Returns how many of `in_flight` requests wait for a session.
  int64_t QueuedOf(int64_t in_flight) const;
  int64_t queued() const { return QueuedOf(load_->in_flight.load(std::memory_order_relaxed)); }

  /// The CPUs of each session, as in "0-3"; "" for one that runs on all.
  std::vector<std::string> cpusets() const;
  std::string precision() const;
  /// The outcome of the warm-up, as text.
  std::string warmup() const;

 private:
  explicit HostedVersion(std::shared_ptr<Model> model) : model_(std::move(model)) {}

  const std::shared_ptr<Model> model_;
  const std::shared_ptr<VersionLoad> load_ = std::make_shared<VersionLoad>();
};

/// Resolves the links in the path of a version.
/// \return NOT_FOUND.
absl::Status ResolvePath(const std::string& path, std::string* resolved);

/// Returns the folder of checkpoints that a version's configuration names; "" if there is none.
std::string CheckpointDirOf(const DesiredVersion& wanted);

/// Returns the seconds that a version may take until it is ready: those of its configuration, else `otherwise`. 0: no
/// limit.
double LoadTimeoutOf(const DesiredVersion& wanted, double otherwise);

}  // namespace processor

#endif  // PROCESSOR_HOST_VERSIONS_HOSTED_VERSION_H_
