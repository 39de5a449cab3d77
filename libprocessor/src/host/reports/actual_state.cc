// SPDX-License-Identifier: Apache-2.0
#include "src/host/reports/actual_state.h"

#include <time.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "src/base/json_text.h"

namespace processor {
namespace {

using Json = nlohmann::ordered_json;

Json TextOrNull(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json VersionJson(const ActualVersion& version) {
  Json json;
  json["state"] = VersionStateName(StateNow(version));
  json["path"] = version.path;
  json["error"] = TextOrNull(version.error);
  json["since"] = version.since;
  json["load_ms"] = version.load_ms;
  json["memory_bytes"] = version.memory_bytes;
  json["sessions"] = version.sessions;
  json["cpuset"] = version.cpuset;
  json["precision"] = TextOrNull(version.precision);
  json["warmup"] = TextOrNull(version.warmup);
  json["in_flight"] = version.load == nullptr ? 0 : version.load->in_flight.load(std::memory_order_relaxed);
  return json;
}

}  // namespace

const char* HostStateName(HostState state) {
  switch (state) {
    case HostState::kStarting:
      return "starting";
    case HostState::kReady:
      return "ready";
    case HostState::kDraining:
      return "draining";
  }
  return "";
}

VersionState StateNow(const ActualVersion& version) {
  const bool warming = version.state == VersionState::kLoading && version.progress != nullptr &&
                       version.progress->warming.load(std::memory_order_relaxed);
  return warming ? VersionState::kWarming : version.state;
}

std::string ActualJson(const ActualState& state) {
  Json json;
  json["schema"] = 1;
  json["host"] = state.host;
  json["pid"] = getpid();
  json["started"] = state.started;
  json["version"] = state.version;
  json["features"] = state.features;
  json["generation"] = state.generation;
  json["desired_error"] = TextOrNull(state.desired_error);
  json["waiting"] = TextOrNull(state.waiting);
  json["state"] = HostStateName(state.state);
  json["endpoints"] = state.endpoints;
  json["cpus"] = state.cpus;
  json["front_end_cpus"] = state.front_end_cpus;
  json["memory_bytes"] = state.memory_bytes;
  json["memory_limit_bytes"] = state.memory_limit_bytes;
  json["stuck_loads"] = state.stuck_loads;
  Json models = Json::object();
  for (const auto& [name, versions] : state.models) {
    Json entries = Json::object();
    for (const auto& [number, entry] : versions) {
      Json version = VersionJson(entry.version);
      version["replacement"] = entry.replacement.has_value() ? VersionJson(*entry.replacement) : Json(nullptr);
      entries[absl::StrCat(number)] = std::move(version);
    }
    models[name] = {{"versions", std::move(entries)}};
  }
  json["models"] = std::move(models);
  return JsonText(json);
}

}  // namespace processor
