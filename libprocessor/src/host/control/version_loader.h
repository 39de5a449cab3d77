// SPDX-License-Identifier: Apache-2.0
// Decides when versions are loaded and unloaded: in which order, how many at a time and for how long. Keeps the records
// of loads for the next process. The host's control owns it.
#ifndef PROCESSOR_HOST_CONTROL_VERSION_LOADER_H_
#define PROCESSOR_HOST_CONTROL_VERSION_LOADER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "src/host/control/delta_stores.h"
#include "src/host/control/desired_file.h"
#include "src/host/control/instances.h"
#include "src/host/control/load_lanes.h"
#include "src/host/control/load_records.h"
#include "src/host/control/reconcile.h"
#include "src/host/files/state_directory.h"

namespace processor {

/// For the control thread.
class VersionLoader {
 public:
  /// Reads the records of the previous process. All pointers are borrowed. `maintenance_cpus` overrides desired.json.
  /// `wake` is called on any thread when a job has ended.
  VersionLoader(const StateDirectory* directory, const DesiredFile* desired, Instances* instances, HostStats* stats,
                std::optional<std::string> maintenance_cpus, std::function<void()> wake);

  /// Collects ended loads and unloads.
  void Collect();
  /// Gives up loads that have exceeded their time limit.
  void EndLateLoads(int64_t now_ns);
  /// Marks failed versions whose next attempt is due.
  void MarkRetries(int64_t now_ns);
  /// Starts the loads that may begin. `serves`: known-good versions have served for a while, so that a suspect may be
  /// loaded.
  void StartLoads(const std::vector<VersionToLoad>& waiting, bool serves);
  /// Starts to unload a version that is no longer used, if there is one.
  void StartUnload();
  /// Cancels the load of a version that is no longer desired.
  void GiveUp(Instance& instance);
  /// Cancels all loads, because the process is about to end: from now on nothing is held against any version.
  void EndAll();
  bool ended() const { return records_.closed(); }

  /// Whether no load remains to be done before the host is ready.
  bool IsSettled(const Plan& plan) const;

  /// Removes the records of versions that are no longer desired.
  void KeepDesired();
  /// Removes the copies of deltas that no version needs any more.
  void RemoveUnusedDeltas() const { delta_stores_.RemoveUnused(desired_.state(), instances_); }
  void WriteRecords();
  /// Waits for the jobs that are running.
  void Wait() { lanes_.Wait(); }
  /// Destroys loaded versions that were not collected.
  void DropLoaded() { lanes_.TakeEnds(); }

 private:
  using Standing = LoadRecords::Standing;

  void CollectLoad(Instance& instance, JobEnd end);
  void Fail(Instance& instance, const absl::Status& status);
  static absl::Status LateError(const Instance& instance);

  const DesiredVersion& Wanted(const VersionToLoad& load) const;
  bool IsBaseline(const VersionToLoad& load) const;
  LoadKey KeyOf(const VersionToLoad& load) const;
  Standing StandingOf(const VersionToLoad& load) const;
  bool AnyKnownGoodIsReady() const;
  bool MayStart(Standing standing, bool serves) const;
  Instance& InstanceFor(const VersionToLoad& load);
  bool StartLoad(const VersionToLoad& load, Standing standing);
  absl::Status BeginLoad(Instance& instance, const DesiredVersion& wanted);
  absl::Status FitsIntoMemory(const Instance& instance) const;
  std::optional<int> FreeLane() const;
  CpuSet MaintenanceCpus();

  const StateDirectory& directory_;
  const DesiredFile& desired_;
  Instances& instances_;
  HostStats& stats_;
  const std::optional<std::string> maintenance_cpus_;

  const DeltaStores delta_stores_;
  LoadRecords records_;
  bool records_pending_ = false;  // the file is out of date
  std::string records_error_;     // that was logged last
  std::string maintenance_error_;
  LoadLanes lanes_;
};

}  // namespace processor

#endif  // PROCESSOR_HOST_CONTROL_VERSION_LOADER_H_
