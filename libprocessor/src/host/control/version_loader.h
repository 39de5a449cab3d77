// SPDX-License-Identifier: Apache-2.0
// Decides which versions are loaded and unloaded when: which come first, how many at a time, for how long, and what is
// remembered of them for the process that follows if this one dies. The host's control owns it.
#ifndef PROCESSOR_HOST_CONTROL_VERSION_LOADER_H_
#define PROCESSOR_HOST_CONTROL_VERSION_LOADER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
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
  /// Reads the records of the process before. All is borrowed. `maintenance_cpus` overrules what is desired. `wake` is
  /// called on any thread when there is something to collect.
  VersionLoader(const StateDirectory* directory, const DesiredFile* desired, Instances* instances, HostStats* stats,
                std::optional<std::string> maintenance_cpus, std::function<void()> wake);

  /// Takes over what has been loaded or unloaded.
  void Collect();
  /// Ends loads that have taken too long.
  void EndLateLoads(int64_t now_ns);
  /// Marks failed versions whose time to be tried again has come.
  void MarkRetries(int64_t now_ns);
  /// Starts the loads that may begin. `serves`: what is known to be good has had time to serve, so that a suspect may
  /// be tried.
  void StartLoads(const std::vector<VersionToLoad>& waiting, bool serves);
  /// Starts to unload a version that nobody uses any more.
  void StartUnload();
  /// Ends the load of a version that nobody wants any more.
  void GiveUp(Instance& instance);
  /// Gives up all loads, since the process is about to end: from now on nothing is held against any version.
  void EndAll();
  bool ended() const { return records_.closed(); }

  /// Whether nothing more has to be loaded before the host is ready.
  bool IsSettled(const Plan& plan) const;

  /// Forgets the records of versions that are not desired any more.
  void KeepDesired();
  void WriteRecords();
  /// Waits for the jobs that are running.
  void Wait() { lanes_.Wait(); }
  /// Destroys versions that have been loaded and were not collected.
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

  LoadRecords records_;
  bool records_pending_ = false;  // the file does not say yet what they say
  std::string records_error_;     // that was logged last
  std::string maintenance_error_;
  LoadLanes lanes_;
};

}  // namespace processor

#endif  // PROCESSOR_HOST_CONTROL_VERSION_LOADER_H_
