// SPDX-License-Identifier: Apache-2.0
// The part of a host that follows desired.json. It owns the loaded versions, the route table and the control thread,
// which compares the desired state with the actual one and loads, publishes, moves or unloads versions. Requests never
// wait for that thread. docs/architecture.md says which part owns which state, and which lock guards it.
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
#include "src/host/control/actual_file.h"
#include "src/host/control/desired_file.h"
#include "src/host/control/front_end.h"
#include "src/host/control/instances.h"
#include "src/host/control/reconcile.h"
#include "src/host/control/route_publisher.h"
#include "src/host/control/version_loader.h"
#include "src/host/files/port_claim.h"
#include "src/host/files/state_directory.h"
#include "src/host/request_log/request_log.h"
#include "src/host/requests/host_stats.h"
#include "src/runtime/threads/cpuset.h"

namespace processor {

struct HostOptions {
  std::string state_dir;
  std::string host_id;
  std::optional<std::string> maintenance_cpus;  // overrides desired.json
  bool owns_process = false;                    // whether threads of the process may be moved
};

/// Every public function may be called from any thread.
class HostControl {
 public:
  static absl::Status Start(const HostOptions& options, std::unique_ptr<HostControl>* control);
  ~HostControl();

  /// The current route table.
  std::shared_ptr<const RouteTable> routes() const { return publisher_.routes(); }
  ActualState Actual() const { return actual_.Get(); }
  HostStats& stats() { return stats_; }
  RequestLog& request_log() { return request_log_; }
  /// The version with that Servable::instance; null if it is unloaded. To cancel requests.
  std::shared_ptr<HostedVersion> FindVersion(uint16_t instance) const { return instances_.FindVersion(instance); }

  /// An empty address removes the endpoint.
  void SetEndpoint(const std::string& name, const std::string& address) { actual_.SetEndpoint(name, address); }
  /// See PortClaim::Take().
  absl::Status ClaimPort(const std::string& address, int port);
  /// Prepares an orderly end of the process: cancels loads, and holds nothing against their versions. Versions continue
  /// to serve.
  void PrepareEnd();
  /// Calls PrepareEnd(), and says in actual.json that the host drains.
  void SetDraining();

  /// Cancels loads and ends the control thread. Versions continue to serve.
  void Stop() noexcept;
  /// Closes all versions: fails waiting requests, waits for running ones as Model::Close() does, or stops them at once.
  /// After Stop().
  void CloseVersions(bool stop_requests) noexcept;

 private:
  HostControl(const HostOptions& options, std::unique_ptr<StateDirectory> directory);

  void Run();
  void Wake();
  void Tick();
  void Apply();
  void EndDrained();
  void Retire(const Plan& plan);
  void UpdateServing(const Plan& plan);
  void UpdateFollowErrors();
  void CountChangedRows(int64_t now_ns);
  static void UpdateSettings(Instance& instance, const DesiredVersion& wanted);
  bool HasServed() const;
  void UpdateActual(const Plan& plan);
  void PlaceFrontEnd(int64_t now_ns);
  void StopLateRequests(int64_t now_ns);
  void WriteStats();

  const std::string host_id_;
  const bool owns_process_;
  const std::unique_ptr<StateDirectory> directory_;
  HostStats stats_;
  RequestLog request_log_;
  ActualFile actual_;

  // Of the control thread.
  DesiredFile desired_;
  Instances instances_;
  RoutePublisher publisher_;
  FrontEnd front_end_;
  std::map<std::string, uint64_t> baselines_;  // the instances that serve, by models
  CpuSet reserved_cpus_;                       // no other version runs on these
  bool started_ = false;                       // the versions that the host starts with have been loaded
  bool asked_to_end_ = false;                  // as the host is drained
  // The last Tick() threw and may have left changes unpublished. Unlike MarkChanged(), this does not wake the thread at
  // once, which would keep a CPU busy as long as memory is short.
  bool publish_again_ = false;
  int64_t started_ns_ = 0;
  int64_t write_stats_at_ns_ = 0;
  int64_t count_changed_rows_at_ns_ = 0;
  bool memory_changed_ = false;  // and is to be reported

  std::mutex ports_mutex_;
  std::vector<PortClaim> ports_;

  std::mutex wake_mutex_;
  std::condition_variable wake_;
  bool woken_ = false;
  bool stop_ = false;
  bool ending_ = false;

  VersionLoader loader_;  // after the members that its jobs use
  std::thread thread_;
};

}  // namespace processor

#endif  // PROCESSOR_HOST_CONTROL_HOST_CONTROL_H_
