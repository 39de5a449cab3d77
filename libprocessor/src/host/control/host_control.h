// SPDX-License-Identifier: Apache-2.0
// The part of a host that follows desired.json: its thread loads, switches, moves and unloads versions, publishes who
// answers requests, and writes what is served. Requests never wait for it.
#ifndef PROCESSOR_HOST_CONTROL_HOST_CONTROL_H_
#define PROCESSOR_HOST_CONTROL_HOST_CONTROL_H_

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "src/host/control/front_end.h"
#include "src/host/control/load_records.h"
#include "src/host/control/maintenance.h"
#include "src/host/control/reconcile.h"
#include "src/host/desired/desired_state.h"
#include "src/host/files/port_claim.h"
#include "src/host/files/state_directory.h"
#include "src/host/reports/actual_state.h"
#include "src/host/request_log/request_log.h"
#include "src/host/requests/host_stats.h"
#include "src/host/requests/route_table.h"
#include "src/host/requests/shadow_lane.h"
#include "src/host/versions/hosted_version.h"
#include "src/host/versions/memory_budget.h"
#include "src/host/versions/model_files.h"
#include "src/runtime/threads/cpuset.h"

namespace processor {

struct HostOptions {
  std::string state_dir;
  std::string host_id;
  std::optional<std::string> maintenance_cpus;  // overrules desired.json
  bool owns_process = false;                    // whether threads of the process may be moved
};

class HostControl {
 public:
  static absl::Status Start(const HostOptions& options, std::unique_ptr<HostControl>* control);
  ~HostControl();

  /// The table of the moment.
  std::shared_ptr<const RouteTable> routes() const;

  ActualState Actual() const;
  HostStats& stats() { return stats_; }
  RequestLog& request_log() { return request_log_; }
  /// "" as address: none.
  void SetEndpoint(const std::string& name, const std::string& address);
  void SetDraining();
  /// See PortClaim::Take().
  absl::Status ClaimPort(const std::string& address, int port);
  /// The process is about to end in order: gives up what is loading, and remembers nothing against it. Versions serve on.
  void PrepareEnd();

  /// The version that has a Servable::instance; null if it is gone. For requests that are cancelled.
  std::shared_ptr<HostedVersion> FindInstance(uint16_t instance) const;

  /// Gives up what is loading and ends the thread. Versions go on serving.
  void Stop() noexcept;
  /// Closes all versions: fails waiting requests, waits for running ones as Model::Close() does, or stops them at once.
  /// After Stop().
  void CloseVersions(bool stop_requests) noexcept;

 private:
  // A version that is there, or was tried.
  struct Instance {
    VersionInstance view;
    DesiredVersion settings;  // as desired last
    std::string path;
    absl::Status error;
    std::string since;
    int64_t since_ns = 0;
    double load_ms = 0;
    MemoryEstimate memory;
    bool given_up = false;
    int64_t retry_at_ns = 0;  // 0: never
    int64_t retry_delay_ns = 0;
    std::optional<int> lane;  // of maintenance, while a load runs, wanted or not
    LoadRecords::Standing standing = LoadRecords::Standing::kUnknown;
    int64_t load_started_ns = 0;
    int64_t load_until_ns = 0;  // 0: for ever
    std::string cpuset;         // that was asked for last
    absl::Status cpuset_error;
    std::shared_ptr<LoadProgress> progress;
    std::shared_ptr<HostedVersion> version;
    std::shared_ptr<const AnswerTexts> texts;
    std::shared_ptr<VersionStats> stats;
  };
  // How a job on a thread of maintenance ended.
  struct JobEnd {
    uint64_t instance = 0;
    bool load = false;  // else an unload
    absl::Status status;
    std::unique_ptr<HostedVersion> version;
  };

  // Copies of requests for shadow versions, and which baseline they are compared with.
  struct Lane {
    std::shared_ptr<ShadowLane> lane;
    int64_t baseline = 0;
  };

  HostControl(const HostOptions& options, std::unique_ptr<StateDirectory> directory);
  void Run();
  void Tick();
  void ServeAccepted();
  void ReadDesired();
  void WriteAccepted();
  void PlaceFrontEnd(int64_t now_ns);
  void CollectJobs();
  void CollectJob(JobEnd end);
  void Apply();
  void SettleServing(const Plan& plan);
  void UpdateSettings(Instance& instance, const DesiredVersion& wanted);
  void RefreshTexts(Instance& instance);
  void Publish(const Plan& plan);
  std::shared_ptr<const Servable> MakeServable(const Instance& instance, bool is_baseline,
                                               const std::shared_ptr<ModelLog>& log) const;
  void SetDesiredError(const std::string& error);
  void StartUnload();
  absl::Status LoadVersion(const DesiredVersion& wanted, int64_t number, const std::shared_ptr<LoadProgress>& progress,
                           std::unique_ptr<HostedVersion>* version);
  void ReadRecords();
  void KeepRecords();
  void WriteRecords();
  void EndLoads();
  static absl::Status LateError(const Instance& instance);
  void EndLateLoads(int64_t now_ns);
  void GiveUp(Instance& instance);
  bool IsBaseline(const VersionToLoad& load) const;
  LoadKey KeyOf(const VersionToLoad& load) const;
  static LoadKey KeyOf(const Instance& instance);
  LoadRecords::Standing StandingOf(const VersionToLoad& load) const;
  bool IsSettled(const Plan& plan) const;
  bool MayTrySuspect(int64_t now_ns) const;
  bool MayStartLoad(LoadRecords::Standing standing) const;
  std::optional<int> FreeLane() const;
  void StartLoads(const std::vector<VersionToLoad>& waiting);
  Instance& InstanceFor(const VersionToLoad& load);
  bool StartLoad(const VersionToLoad& load, LoadRecords::Standing standing);
  int StuckLoads() const;
  // Loads, and somebody wants it.
  static bool IsLoading(const Instance& instance) {
    return instance.lane.has_value() && !instance.given_up && instance.view.state == VersionState::kLoading;
  }
  void Finish(uint64_t id, bool load, const absl::Status& status, std::unique_ptr<HostedVersion> version);
  absl::Status FitsIntoMemory(const Instance& instance) const;
  void SetState(Instance& instance, VersionState state);
  void Fail(Instance& instance, const absl::Status& status);
  Instance& At(uint64_t id) { return *instances_.at(id); }
  CpuSet MaintenanceCpus();
  void UpdateActual(const Plan& plan);
  ActualVersion Describe(const Instance& instance) const;
  void WriteActual();
  void WriteStats();
  std::vector<ShadowRoute> MakeShadows(const std::string& name, int64_t baseline,
                                       const std::vector<ShadowTarget>& targets);
  void EndLanesOutside(const RouteTable& table);
  void EndLane(Lane& lane);
  std::string ShadowText() const;
  bool AnyDraining() const;
  void StopLateRequests(int64_t now_ns);
  static uint16_t CancelNumber(uint64_t id) { return static_cast<uint16_t>(id); }

  static constexpr int kUnloadLane = 0;
  // Those of loads beside it. One that nobody can interrupt keeps its lane: there may be so many of them.
  static constexpr int kLoadLanes = 6;

  const std::string host_id_;
  const std::optional<std::string> maintenance_cpus_;
  const std::unique_ptr<StateDirectory> directory_;

  // Of the control thread alone.
  DesiredState desired_;
  std::map<uint64_t, std::unique_ptr<Instance>> instances_;
  std::map<std::string, uint64_t> baselines_;  // what serves: instances
  std::map<std::string, std::shared_ptr<std::atomic<uint64_t>>> keyless_;
  std::vector<std::shared_ptr<const RouteTable>> old_tables_;
  FrontEnd front_end_;
  CpuSet reserved_cpus_;  // baselines have them to themselves
  uint64_t next_instance_ = 1;
  bool changed_ = true;  // since the table was made
  bool started_ = false;
  int64_t started_ns_ = 0;
  LoadRecords records_;
  bool records_pending_ = false;  // the file does not say yet what they say
  std::string records_error_;
  bool desired_missing_ = false;
  std::string refused_;   // why desired.json, as it is, is not followed, or not whole
  std::string accepted_;  // the text of what is followed; empty: nothing was ever accepted
  bool accepted_dirty_ = false;
  bool written_warming_ = false;
  int64_t memory_limit_ = 0;
  std::string write_error_;
  std::string maintenance_error_;
  int64_t write_again_ns_ = 0, write_accepted_ns_ = 0, write_stats_ns_ = 0;

  HostStats stats_;
  RequestLog request_log_;
  FileChecker files_;

  std::map<HostStats::Key, Lane> lanes_;
  std::vector<std::shared_ptr<ShadowLane>> old_lanes_;

  mutable std::mutex table_mutex_;
  const std::shared_ptr<const RouteTable> empty_table_ = std::make_shared<RouteTable>();
  std::shared_ptr<const RouteTable> table_ = empty_table_;

  mutable std::mutex actual_mutex_;
  ActualState actual_;
  bool actual_dirty_ = true;

  std::mutex ports_mutex_;
  std::vector<PortClaim> ports_;

  mutable std::mutex versions_mutex_;  // for FindInstance()
  std::map<uint16_t, std::weak_ptr<HostedVersion>> versions_;

  std::mutex wake_mutex_;
  std::condition_variable wake_;
  bool woken_ = false;
  bool stop_ = false;
  bool ending_ = false;
  std::vector<JobEnd> job_ends_;

  Maintenance maintenance_;  // last, so that its jobs end before what they use
  std::thread thread_;
};

}  // namespace processor

#endif  // PROCESSOR_HOST_CONTROL_HOST_CONTROL_H_
