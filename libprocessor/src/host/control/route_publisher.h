// SPDX-License-Identifier: Apache-2.0
// Publishes the route table, by which requests find the version that answers them. The host's control owns it; requests
// take references to parts of the table.
#ifndef PROCESSOR_HOST_CONTROL_ROUTE_PUBLISHER_H_
#define PROCESSOR_HOST_CONTROL_ROUTE_PUBLISHER_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/base/published.h"
#include "src/host/control/instances.h"
#include "src/host/control/reconcile.h"
#include "src/host/control/shadow_lanes.h"
#include "src/host/desired/desired_state.h"
#include "src/host/request_log/request_log.h"
#include "src/host/requests/route_table.h"

namespace processor {

/// For the control thread, except for routes().
class RoutePublisher {
 public:
  /// Both are borrowed.
  RoutePublisher(const Instances* instances, RequestLog* request_log);

  /// The current table. Any thread may call.
  std::shared_ptr<const RouteTable> routes() const { return table_.Read(); }

  /// Makes a table of the versions that serve, and replaces the current one.
  void Publish(const Plan& plan, const DesiredState& desired);
  /// Destroys replaced tables, which hold versions that are to end, and shadow lanes, once no request uses them.
  void DestroyUnused();

  /// Ends mirroring. Requests are still routed.
  void StopShadows() noexcept { shadows_.Stop(); }
  /// Publishes an empty table, and releases all versions.
  void Clear() noexcept;

  const ShadowLanes& shadows() const { return shadows_; }

 private:
  std::shared_ptr<const ModelRoutes> MakeRoutes(const std::string& name, const ModelPlan& plan,
                                                const DesiredModel& desired);
  static std::shared_ptr<const Servable> MakeServable(const Instance& instance, bool is_baseline,
                                                      const std::shared_ptr<ModelLog>& log);

  const Instances& instances_;
  RequestLog& request_log_;
  std::map<std::string, std::shared_ptr<std::atomic<uint64_t>>> keyless_;  // requests without a key, by models

  const std::shared_ptr<const RouteTable> empty_ = std::make_shared<RouteTable>();
  Published<const RouteTable> table_{empty_};
  std::vector<std::shared_ptr<const RouteTable>> replaced_;

  ShadowLanes shadows_;  // last: its threads read the table
};

}  // namespace processor

#endif  // PROCESSOR_HOST_CONTROL_ROUTE_PUBLISHER_H_
