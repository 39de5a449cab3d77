// SPDX-License-Identifier: Apache-2.0
// The versions that a host has loaded, or has tried to load. The control thread owns them; requests find those that serve
// in the route table.
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

/// One attempt at a version of a model, and what came of it.
struct Instance {
  VersionInstance view;     // what Reconcile() looks at
  DesiredVersion settings;  // as it was desired last
  std::string path;         // with links resolved; empty before the first load
  absl::Status error;
  std::string since;  // when it came into its state
  int64_t since_ns = 0;
  MemoryEstimate memory;

  // The load.
  std::shared_ptr<LoadProgress> progress;
  std::optional<int> lane;  // that the load holds, wanted or not
  LoadRecords::Standing standing = LoadRecords::Standing::kUnknown;
  int64_t load_started_ns = 0;
  int64_t load_until_ns = 0;  // 0: no limit
  bool given_up = false;      // nobody wants it any more
  int64_t retry_at_ns = 0;    // 0: never
  int64_t retry_delay_ns = 0;

  // What has been loaded.
  std::shared_ptr<HostedVersion> version;  // null before and after
  double load_ms = 0;
  std::string cpuset;  // that was asked for last
  absl::Status cpuset_error;
  std::shared_ptr<const AnswerTexts> texts;
  std::shared_ptr<VersionStats> stats;

  LoadKey Key() const { return {view.model, view.number, view.identity}; }
  /// The number that tells its requests from those of other instances, for cancelling.
  uint16_t CancelNumber() const { return static_cast<uint16_t>(view.id); }
  /// Whether it is being loaded, and somebody wants it.
  bool IsLoading() const { return lane.has_value() && !given_up && view.state == VersionState::kLoading; }
  /// Names it for the log.
  std::string Name() const;
  /// Writes its texts anew, from the version that has been loaded.
  void RefreshTexts();
};

/// For the control thread, but for FindVersion().
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
  /// Gives an instance the version that has been loaded for it.
  void SetVersion(Instance& instance, std::unique_ptr<HostedVersion> version);
  /// Takes the version of an instance if no request and no route table holds it; null if one does.
  std::shared_ptr<HostedVersion> TakeUnusedVersion(Instance& instance);

  /// What Reconcile() looks at: those that have not been given up.
  std::vector<VersionInstance> Views() const;
  bool AnyDraining() const;
  bool HoldsLane(int lane) const;
  /// The number of loads that nobody wants any more, and that cannot be interrupted.
  int StuckLoads() const;

  /// Whether something has changed that requests or others are to be told of since TakeChanged() was called.
  bool changed() const { return changed_; }
  void MarkChanged() { changed_ = true; }
  bool TakeChanged() { return std::exchange(changed_, false); }

  /// The version whose instance has that Instance::CancelNumber(); null if it is gone. Any thread may ask.
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
