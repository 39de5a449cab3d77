// SPDX-License-Identifier: Apache-2.0
// The lanes of a host's shadow versions: which versions get mirrored requests, and the results. The route publisher
// owns it.
#ifndef PROCESSOR_HOST_CONTROL_SHADOW_LANES_H_
#define PROCESSOR_HOST_CONTROL_SHADOW_LANES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/host/desired/desired_state.h"
#include "src/host/requests/host_stats.h"
#include "src/host/requests/route_table.h"
#include "src/host/requests/shadow_lane.h"

namespace processor {

/// For the control thread. Each lane has a thread of its own.
class ShadowLanes {
 public:
  /// Finds a version of a model that is ready to serve, on any thread; null if it is not.
  using FindServable = std::function<std::shared_ptr<const Servable>(const std::string& model, int64_t version)>;

  explicit ShadowLanes(FindServable find) : find_(std::move(find)) {}

  /// The routes to a model's shadow versions beside that baseline. The comparison starts again with each new baseline;
  /// a version is never compared with itself.
  std::vector<ShadowRoute> Routes(const std::string& model, int64_t baseline, const std::vector<ShadowTarget>& targets);
  /// Ends the lanes that a table does not route to.
  void EndAllBut(const RouteTable& table);
  /// Destroys ended lanes to which no request has a reference.
  void DestroyEnded();

  /// Drops waiting requests; the threads end after the requests that they run.
  void Stop() noexcept;
  /// Destroys all lanes, and waits for their threads.
  void Clear() noexcept;

  bool empty() const { return lanes_.empty(); }
  /// The text of shadow.json.
  std::string Text(const std::string& host_id) const;

 private:
  struct Lane {
    std::shared_ptr<ShadowLane> lane;
    int64_t baseline = 0;
  };

  void End(Lane& lane);

  const FindServable find_;
  std::map<HostStats::Key, Lane> lanes_;
  std::vector<std::shared_ptr<ShadowLane>> ended_;
};

}  // namespace processor

#endif  // PROCESSOR_HOST_CONTROL_SHADOW_LANES_H_
