// SPDX-License-Identifier: Apache-2.0
// The versions that a host has loaded or tried to load. The host's control owns them; requests find ready versions in
// the route table.
#ifndef PROCESSOR_HOST_CONTROL_INSTANCES_H_
#define PROCESSOR_HOST_CONTROL_INSTANCES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "src/host/control/load_records.h"
#include "src/host/control/reconcile.h"
#include "src/host/desired/desired_state.h"
#include "src/host/requests/host_stats.h"
#include "src/host/requests/route_table.h"
#include "src/host/versions/hosted_version.h"
#include "src/host/versions/memory_budget.h"

namespace processor {

/// One attempt to load and serve a version of a model.
struct Instance {
  VersionInstance view;     // the input of Reconcile()
  DesiredVersion settings;  // from the latest desired state
  std::string path;         // with links resolved; empty before the first load
  absl::Status error;
  std::string since;  // when it entered its state
  int64_t since_ns = 0;
  MemoryEstimate memory;

  // The load.
  std::shared_ptr<LoadProgress> progress;
  std::optional<int> lane;  // that the load occupies, even if it was given up
  LoadRecords::Standing standing = LoadRecords::Standing::kUnknown;
  int64_t load_started_ns = 0;
  int64_t load_until_ns = 0;  // 0: no limit
  bool given_up = false;      // it is no longer desired
  int64_t retry_at_ns = 0;    // 0: never
  int64_t retry_delay_ns = 0;

  // What has been loaded.
  std::shared_ptr<HostedVersion> version;  // null before it is loaded and once it is unloaded
  double load_ms = 0;
  std::string cpuset;  // from the latest desired state, as SetCpuset() got it
  absl::Status cpuset_error;
  std::string follow_error;  // why it is not at the newest epoch of its timeline; empty if it is
  std::shared_ptr<const AnswerTexts> texts;
  std::shared_ptr<VersionStats> stats;

  LoadKey Key() const { return {view.model, view.number, view.identity}; }
  /// Identifies the instance in the ids of its requests, by which they are canceled.
  uint16_t CancelNumber() const { return static_cast<uint16_t>(view.id); }
  /// Whether it is being loaded and still desired.
  bool IsLoading() const { return lane.has_value() && !given_up && view.state == VersionState::kLoading; }
  /// Returns its name for the log.
  std::string Name() const;
  /// Updates `texts` from the loaded version.
  void RefreshTexts();
};

/// For the control thread, except for FindVersion().
class Instances {
 public:
  /// Makes an instance of a version, in the state kLoading.
  Instance& Add(const std::string& model, int64_t number, const DesiredVersion& wanted);
  Instance& At(uint64_t id) const { return *instances_.at(id); }
  /// Null if there is none.
  Instance* Find(uint64_t id) const;
  void Erase(uint64_t id) { instances_.erase(id); }
  const std::map<uint64_t, std::unique_ptr<Instance>>& all() const { return instances_; }

  void SetState(Instance& instance, VersionState state);
  /// Sets the loaded version of an instance.
  void SetVersion(Instance& instance, std::unique_ptr<HostedVersion> version);
  /// Takes the version of an instance if no request and no route table holds it; returns null if one does.
  std::shared_ptr<HostedVersion> TakeUnusedVersion(Instance& instance);

  /// The instances that have not been given up, as input of Reconcile().
  std::vector<VersionInstance> Views() const;
  bool AnyDraining() const;
  bool HoldsLane(int lane) const;
  /// The number of loads that are no longer desired but cannot be interrupted.
  int StuckLoads() const;

  /// Whether a state has changed since TakeChanged() was called, so that routes and actual.json must be updated.
  bool changed() const { return changed_; }
  void MarkChanged() { changed_ = true; }
  bool TakeChanged() { return std::exchange(changed_, false); }

  /// The version whose instance has that Instance::CancelNumber(); null if it is unloaded. Any thread may call.
  std::shared_ptr<HostedVersion> FindVersion(uint16_t cancel_number) const;

 private:
  std::map<uint64_t, std::unique_ptr<Instance>> instances_;
  uint64_t next_id_ = 1;
  bool changed_ = true;

  mutable std::mutex versions_mutex_;
  std::map<uint16_t, std::weak_ptr<HostedVersion>> versions_;  // by Instance::CancelNumber()
};

}  // namespace processor

#endif  // PROCESSOR_HOST_CONTROL_INSTANCES_H_
