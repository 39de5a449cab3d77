// SPDX-License-Identifier: Apache-2.0
// Runs the loads and unloads of versions on maintenance threads, one at a time in each lane. The version loader owns
// it, and decides what runs.
#ifndef PROCESSOR_HOST_CONTROL_LOAD_LANES_H_
#define PROCESSOR_HOST_CONTROL_LOAD_LANES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "src/host/control/maintenance.h"
#include "src/host/desired/desired_state.h"
#include "src/host/versions/hosted_version.h"
#include "src/host/versions/model_files.h"
#include "src/runtime/threads/cpuset.h"

namespace processor {

/// How a load or an unload has ended.
struct JobEnd {
  uint64_t instance = 0;
  bool load = false;  // else an unload
  absl::Status status;
  std::unique_ptr<HostedVersion> version;  // the loaded one
};

/// For the control thread, which collects ended jobs by TakeEnds().
class LoadLanes {
 public:
  static constexpr int kUnloadLane = 0;
  /// The last of the lanes of loads, which follow kUnloadLane. A load that cannot be interrupted occupies its lane.
  static constexpr int kLastLane = 6;

  /// `verified_files`: the file that records which model files have been verified. `wake` is called at the end of each
  /// job, on its thread.
  LoadLanes(std::string verified_files, std::function<void()> wake);

  bool busy(int lane) const { return maintenance_.busy(lane); }

  /// Starts a load on a lane that is not busy. `cpus`: as for Maintenance::Start().
  /// \return RESOURCE_EXHAUSTED if no thread can be started.
  absl::Status StartLoad(int lane, const CpuSet& cpus, uint64_t instance, const DesiredVersion& wanted, int64_t number,
                         HostedPlace place, std::shared_ptr<LoadProgress> progress);
  /// Starts to destroy a version, of which this is the last reference. `version` stays as it is if that fails.
  absl::Status StartUnload(const CpuSet& cpus, uint64_t instance, std::shared_ptr<HostedVersion>* version);

  /// The jobs that have ended since the last call.
  std::vector<JobEnd> TakeEnds();
  /// Waits for the jobs that are running.
  void Wait() { maintenance_.Wait(); }

 private:
  absl::Status Load(const DesiredVersion& wanted, int64_t number, const HostedPlace& place,
                    const std::shared_ptr<LoadProgress>& progress, std::unique_ptr<HostedVersion>* version);
  void Finish(JobEnd end);

  FileChecker files_;
  std::mutex mutex_;
  std::vector<JobEnd> ends_;
  Maintenance maintenance_;  // last, so that its jobs end before the members that they use
};

}  // namespace processor

#endif  // PROCESSOR_HOST_CONTROL_LOAD_LANES_H_
