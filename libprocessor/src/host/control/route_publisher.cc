// SPDX-License-Identifier: Apache-2.0
#include "src/host/control/route_publisher.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace processor {

RoutePublisher::RoutePublisher(const Instances* instances, RequestLog* request_log)
    : instances_(*instances),
      request_log_(*request_log),
      shadows_([this](const std::string& model, int64_t version) -> std::shared_ptr<const Servable> {
        const std::shared_ptr<const RouteTable> table = routes();
        const ModelRoutes* found = nullptr;
        if (!table->Find(model, &found).ok()) return nullptr;
        const auto route = found->versions.find(version);
        return route == found->versions.end() ? nullptr : route->second.servable;
      }) {}

std::shared_ptr<const Servable> RoutePublisher::MakeServable(const Instance& instance, bool is_baseline,
                                                             const std::shared_ptr<ModelLog>& log) {
  auto servable = std::make_shared<Servable>();
  servable->version = instance.version;
  servable->instance = instance.CancelNumber();
  servable->number = instance.view.number;
  servable->is_baseline = is_baseline;
  servable->priority = instance.settings.priority;
  servable->limits = instance.settings.limits;
  servable->texts = instance.texts;
  servable->stats = instance.stats;
  servable->log = log;
  return servable;
}

std::shared_ptr<const ModelRoutes> RoutePublisher::MakeRoutes(const std::string& name, const ModelPlan& plan,
                                                              const DesiredModel& desired) {
  auto routes = std::make_shared<ModelRoutes>();
  routes->name = name;
  routes->baseline_number = desired.baseline;
  routes->labels.insert(desired.labels.begin(), desired.labels.end());
  routes->rules = desired.routing;
  std::shared_ptr<std::atomic<uint64_t>>& keyless = keyless_[name];
  if (keyless == nullptr) keyless = std::make_shared<std::atomic<uint64_t>>(0);
  routes->keyless = keyless;
  routes->log = request_log_.Of(name, desired.request_log);
  if (plan.baseline.has_value()) {
    routes->baseline = MakeServable(instances_.At(*plan.baseline), true, routes->log);
    routes->baseline_number = routes->baseline->number;
    routes->shadows = shadows_.Routes(name, routes->baseline->number, desired.shadow);
  }
  for (const auto& [number, version] : desired.versions) {
    VersionRoute& route = routes->versions[number];
    route.traffic = version.traffic;
    const auto serving = plan.serving.find(number);
    if (serving != plan.serving.end()) {
      const Instance& instance = instances_.At(serving->second);
      if (!version.fault.ok()) route.traffic = instance.settings.traffic;
      const bool is_baseline = plan.baseline == serving->second;
      route.servable = is_baseline ? routes->baseline : MakeServable(instance, false, routes->log);
      continue;
    }
    const auto incoming = plan.incoming.find(number);
    route.state = VersionStateName(incoming == plan.incoming.end() ? VersionState::kLoading
                                                                   : instances_.At(incoming->second).view.state);
    if (number == desired.baseline) routes->baseline_state = absl::StrCat("version ", number, " is ", route.state);
  }
  return routes;
}

void RoutePublisher::Publish(const Plan& plan, const DesiredState& desired) {
  auto table = std::make_shared<RouteTable>();
  for (const auto& [name, planned] : plan.models) table->Add(MakeRoutes(name, planned, desired.models.at(name)));
  shadows_.EndAllBut(*table);
  request_log_.Keep(desired.models);
  // This thread destroys the old table, not the last request that uses it.
  replaced_.push_back(table_.Exchange(std::move(table)));
}

void RoutePublisher::DestroyUnused() {
  replaced_.erase(
      std::remove_if(replaced_.begin(), replaced_.end(), [](const auto& table) { return table.use_count() == 1; }),
      replaced_.end());
  shadows_.DestroyEnded();
}

void RoutePublisher::Clear() noexcept {
  // Threads of shadow lanes read the table, and hold versions while they run.
  table_.Exchange(empty_);
  replaced_.clear();
  shadows_.Clear();
}

}  // namespace processor
