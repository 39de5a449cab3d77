// SPDX-License-Identifier: Apache-2.0
#include "src/host/control/shadow_lanes.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "src/base/json_text.h"
#include "src/host/reports/actual_state.h"

namespace processor {

std::vector<ShadowRoute> ShadowLanes::Routes(const std::string& model, int64_t baseline,
                                             const std::vector<ShadowTarget>& targets) {
  std::vector<ShadowRoute> routes;
  for (const ShadowTarget& target : targets) {
    if (target.version == baseline) continue;
    Lane& lane = lanes_[{model, target.version}];
    if (lane.lane != nullptr && lane.baseline != baseline) End(lane);
    if (lane.lane == nullptr) {
      lane.baseline = baseline;
      const auto finder = [&](int64_t version) { return [this, model, version] { return find_(model, version); }; };
      lane.lane = std::make_shared<ShadowLane>(finder(target.version), finder(baseline));
    }
    routes.push_back({target.version, target.weight, lane.lane});
  }
  return routes;
}

void ShadowLanes::End(Lane& lane) {
  lane.lane->Stop();
  ended_.push_back(std::move(lane.lane));
}

void ShadowLanes::EndAllBut(const RouteTable& table) {
  for (auto it = lanes_.begin(); it != lanes_.end();) {
    const ModelRoutes* routes = nullptr;
    const bool wanted = table.Find(it->first.first, &routes).ok() &&
                        std::any_of(routes->shadows.begin(), routes->shadows.end(),
                                    [&](const ShadowRoute& shadow) { return shadow.version == it->first.second; });
    if (!wanted) End(it->second);
    it = wanted ? std::next(it) : lanes_.erase(it);
  }
}

void ShadowLanes::DestroyEnded() {
  ended_.erase(std::remove_if(ended_.begin(), ended_.end(),
                              [](const auto& lane) { return lane->ended() && lane.use_count() == 1; }),
               ended_.end());
}

void ShadowLanes::Stop() noexcept {
  for (auto& [key, lane] : lanes_) lane.lane->Stop();
}

void ShadowLanes::Clear() noexcept {
  lanes_.clear();
  ended_.clear();
}

std::string ShadowLanes::Text(const std::string& host_id) const {
  nlohmann::ordered_json json;
  json["schema"] = 1;
  json["host"] = host_id;
  json["time"] = WallClockText();
  nlohmann::ordered_json models = nlohmann::ordered_json::object();
  for (const auto& [key, lane] : lanes_) {
    nlohmann::ordered_json version = lane.lane->Json();
    version["baseline"] = lane.baseline;
    models[key.first]["versions"][absl::StrCat(key.second)] = std::move(version);
  }
  json["models"] = std::move(models);
  return JsonText(json);
}

}  // namespace processor
