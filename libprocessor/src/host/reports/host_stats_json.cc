// SPDX-License-Identifier: Apache-2.0
// Writes stats.json.
#include <cmath>
#include <functional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "src/base/byte_budget.h"
#include "src/base/json_text.h"
#include "src/codec/protocols.h"
#include "src/host/reports/host_metrics.h"
#include "src/host/reports/metrics_writer.h"
#include "src/host/request_log/request_log.h"

namespace processor {
namespace {

using Json = nlohmann::ordered_json;

Json OutcomesJson(const std::function<uint64_t(int code)>& count) {
  Json json = Json::object();
  for (int code = 0; code < kStatusCodes; ++code) {
    if (count(code) > 0) json[CodeName(code)] = count(code);
  }
  return json;
}

// Bounds in nanoseconds, four per doubling: those of Prometheus are too coarse for a p99.
const std::vector<int64_t>& FineBounds() {
  static const auto* const bounds = [] {
    auto* const all = new std::vector<int64_t>;
    for (int step = 0; step <= 90; ++step) all->push_back(std::llround(10000 * std::exp2(step / 4.0)));
    return all;
  }();
  return *bounds;
}

// Cumulative counts up to each bound; the difference of two reads describes the time between them.
Json DurationJson(const std::vector<const Histogram*>& histograms, const std::vector<int64_t>& bounds) {
  Json json = Histogram::SummaryUs(histograms);
  std::vector<uint64_t> below(bounds.size() + 1);
  for (const Histogram* histogram : histograms) {
    const Histogram::Cumulative values = histogram->Below(bounds);
    for (size_t i = 0; i < below.size(); ++i) below[i] += values.counts[i];
  }
  Json buckets = Json::array();
  for (size_t i = 0; i < bounds.size(); ++i) buckets.push_back({static_cast<double>(bounds[i]) / 1000, below[i]});
  json["buckets"] = std::move(buckets);
  return json;
}

Json VersionStatsJson(const VersionStats& stats) {
  std::vector<const MethodStats*> all;
  Json by_protocol = Json::object();
  const auto with_code_of = [](const std::vector<const MethodStats*>& methods, int code) {
    uint64_t count = 0;
    for (const MethodStats* method : methods) count += method->outcomes.at(code);
    return count;
  };
  for (size_t i = 0; i < Protocols().size(); ++i) {
    const std::vector<const MethodStats*> methods = stats.protocol(static_cast<int>(i));
    if (methods.empty()) continue;
    all.insert(all.end(), methods.begin(), methods.end());
    by_protocol[Protocols()[i]] = OutcomesJson([&](int code) { return with_code_of(methods, code); });
  }
  const auto with_code = [&](int code) { return with_code_of(all, code); };
  std::vector<const Histogram*> durations;
  for (const MethodStats* method : all) durations.push_back(&method->duration);
  Json json;
  uint64_t requests = 0;
  for (int code = 0; code < kStatusCodes; ++code) requests += with_code(code);
  json["requests"] = requests;
  json["outcomes"] = OutcomesJson(with_code);
  json["protocols"] = std::move(by_protocol);
  json["duration_us"] = DurationJson(durations, FineBounds());
  json["queue_us"] = DurationJson({&stats.queue()}, DurationBounds());
  json["run_us"] = DurationJson({&stats.run()}, DurationBounds());
  json["scores"] = {{"answers", stats.scores().answers()},
                    {"count", stats.scores().scores()},
                    {"nan", stats.scores().nan()},
                    {"infinite", stats.scores().infinite()}};
  Json arms = Json::object(), shed = Json::object();
  for (int reason = 0; reason < kChoiceReasons; ++reason) {
    arms[ChoiceName(static_cast<ChoiceReason>(reason))] = stats.chosen(reason);
  }
  for (int reason = 0; reason < kShedReasons - 1; ++reason) {
    shed[ShedName(static_cast<ShedReason>(reason))] = stats.shed(reason);
  }
  json["arms"] = std::move(arms);
  json["shed"] = std::move(shed);
  return json;
}

}  // namespace

std::string HostStatsJson(const ActualState& actual, const RouteTable& table, const HostStats& stats) {
  Json json;
  json["schema"] = 1;
  json["host"] = actual.host;
  json["time"] = WallClockText();
  json["generation"] = actual.generation;
  Json models = Json::object();
  for (const auto& [key, version] : stats.versions()) {
    models[key.first]["versions"][absl::StrCat(key.second)] = VersionStatsJson(*version);
  }
  for (const auto& model : table.models()) {
    if (model->log != nullptr) {
      models[model->name]["request_log"] = {{"written", model->log->written()},
                                            {"dropped", model->log->dropped()},
                                            {"unsupported", model->log->unsupported()}};
    }
    for (const auto& [number, route] : model->versions) {
      if (route.servable == nullptr) continue;
      Json& version = models[model->name]["versions"][absl::StrCat(number)];
      version["in_flight"] = route.servable->version->load().in_flight.load();
      version["queued"] = route.servable->version->queued();
      const BatchStats& batches = route.servable->version->model().batch_stats();
      version["batch_rows"] = batches.rows.Json();
      version["batch_requests"] = batches.requests.Json();
      if (const auto live = route.servable->version->model().following()) version["live"] = live->Json();
      if (const auto loaded = route.servable->version->model().version(); loaded != nullptr) {
        if (const auto tiers = loaded->tiers()) version["tables"] = tiers->Json();
        version["batch_checks"] = loaded->output_rows.checks();
        version["batch_signatures"] = loaded->output_rows.Json(loaded->signatures().all());
      }
    }
  }
  json["request_bytes"] = RequestBytesJson();
  json["models"] = std::move(models);
  return JsonText(json);
}

}  // namespace processor
