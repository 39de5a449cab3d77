// SPDX-License-Identifier: Apache-2.0
// Which shadow versions get copies of requests, and what came of them.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "src/base/json_text.h"
#include "src/host/control/host_control.h"

namespace processor {

std::vector<ShadowRoute> HostControl::MakeShadows(const std::string& name, int64_t baseline,
                                                  const std::vector<ShadowTarget>& targets) {
  std::vector<ShadowRoute> shadows;
  for (const ShadowTarget& target : targets) {
    // A version is not compared with itself, and with each baseline anew.
    if (target.version == baseline) continue;
    Lane& lane = lanes_[{name, target.version}];
    if (lane.lane != nullptr && lane.baseline != baseline) EndLane(lane);
    if (lane.lane == nullptr) {
      lane.baseline = baseline;
      lane.lane = std::make_shared<ShadowLane>([this, name, number = target.version] {
        const std::shared_ptr<const RouteTable> table = routes();
        const ModelRoutes* found = nullptr;
        if (!table->Find(name, &found).ok()) return std::shared_ptr<const Servable>();
        const auto version = found->versions.find(number);
        return version == found->versions.end() ? nullptr : version->second.servable;
      });
    }
    shadows.push_back({target.version, target.weight, lane.lane});
  }
  return shadows;
}

void HostControl::EndLane(Lane& lane) {
  lane.lane->Stop();
  old_lanes_.push_back(std::move(lane.lane));
}

void HostControl::EndLanesOutside(const RouteTable& table) {
  for (auto it = lanes_.begin(); it != lanes_.end();) {
    const ModelRoutes* routes = nullptr;
    const bool wanted = table.Find(it->first.first, &routes).ok() &&
                        std::any_of(routes->shadows.begin(), routes->shadows.end(),
                                    [&](const ShadowRoute& shadow) { return shadow.version == it->first.second; });
    if (!wanted) EndLane(it->second);
    it = wanted ? std::next(it) : lanes_.erase(it);
  }
}

std::string HostControl::ShadowText() const {
  nlohmann::ordered_json json;
  json["schema"] = 1;
  json["host"] = host_id_;
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
