// SPDX-License-Identifier: Apache-2.0
// One loaded version of a model in a host: the model of the runtime, and what the host counts of it.
//
// Requests hold it by shared_ptr to their end. Whoever unloads waits until its own is the only reference: no request is
// left then, and none can come.
#ifndef PROCESSOR_HOST_VERSIONS_HOSTED_VERSION_H_
#define PROCESSOR_HOST_VERSIONS_HOSTED_VERSION_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "src/host/desired/desired_state.h"
#include "src/host/versions/memory_budget.h"
#include "src/host/versions/standing_queue.h"
#include "src/runtime/model/model.h"

namespace processor {

/// What is counted of a version while it runs; it may outlive the version.
struct VersionLoad {
  std::atomic<int64_t> in_flight{0};  // that wait or run
  std::atomic<int64_t> recent_run_ns{0};
  StandingQueue more_important;  // as requests of this version found it

  /// Moves the recent run time an eighth of the way to another run.
  void AddRun(int64_t run_ns) {
    const int64_t recent = recent_run_ns.load(std::memory_order_relaxed);
    recent_run_ns.store(recent == 0 ? run_ns : recent + (run_ns - recent) / 8, std::memory_order_relaxed);
  }
};

class HostedVersion {
 public:
  /// Loads and warms up. What is not read from `wanted` can be set again later.
  static absl::Status Load(const DesiredVersion& wanted, int64_t number, std::shared_ptr<LoadProgress> progress,
                           std::unique_ptr<HostedVersion>* version);

  /// Moves the sessions to CPUs: the text as the key `cpusets`, or one group for all; "" for all CPUs. Requests run on
  /// threads of the sessions as long as these have CPUs of their own, unless the configuration says where.
  absl::Status SetCpuset(const std::string& cpuset);

  /// How requests are put together from now on.
  void SetBatching(const BatchOptions& options) { model_->SetBatching(options); }
  BatchOptions batching() const { return model_->batching(); }

  Model& model() const { return *model_; }
  VersionLoad& load() const { return *load_; }
  std::shared_ptr<VersionLoad> shared_load() const { return load_; }
  int sessions() const { return model_->config().session_num; }

  /// Of `in_flight` requests, those that wait for a session.
  int64_t QueuedOf(int64_t in_flight) const;
  int64_t queued() const { return QueuedOf(load_->in_flight.load(std::memory_order_relaxed)); }

  /// Of each session: "0-3"; "" for one that runs anywhere.
  std::vector<std::string> cpusets() const;
  std::string precision() const;
  /// What came of the warm-up, in words.
  std::string warmup() const;

 private:
  explicit HostedVersion(std::shared_ptr<Model> model) : model_(std::move(model)) {}

  const std::shared_ptr<Model> model_;
  const std::shared_ptr<VersionLoad> load_ = std::make_shared<VersionLoad>();
};

/// Where a version is: links resolved.
/// \return NOT_FOUND.
absl::Status ResolvePath(const std::string& path, std::string* resolved);

/// The folder of checkpoints that a version's configuration names; "" if none.
std::string CheckpointDirOf(const DesiredVersion& wanted);

/// Seconds that a version may take until it is ready: what its configuration says, else `otherwise`; 0: no limit.
double LoadTimeoutOf(const DesiredVersion& wanted, double otherwise);

}  // namespace processor

#endif  // PROCESSOR_HOST_VERSIONS_HOSTED_VERSION_H_
