// SPDX-License-Identifier: Apache-2.0
// The methods that describe a host and its models, and run no model.
#include <algorithm>
#include <memory>
#include <vector>

#include "src/codec/descriptions.h"
#include "src/host/model_host.h"
#include "src/host/requests/host_stats.h"

namespace processor {
namespace {

VersionPhase PhaseOf(VersionState state) {
  switch (state) {
    case VersionState::kLoading:
      return VersionPhase::kLoading;
    case VersionState::kWarming:
      return VersionPhase::kWarming;
    case VersionState::kReady:
      return VersionPhase::kReady;
    case VersionState::kDraining:
      return VersionPhase::kDraining;
    case VersionState::kFailed:
      return VersionPhase::kFailed;
  }
  return VersionPhase::kFailed;
}

absl::Status FailureOf(const ActualVersion& version) {
  return version.failure.ok() ? absl::UnknownError(version.error) : version.failure;
}

InferenceCounts CountsOf(const Servable& servable) {
  const InferenceTotals::Value totals = servable.stats->totals().Get();
  // Requests that were batched had fewer runs than there were requests.
  const SizeHistogram& together = servable.version->model().batch_stats().requests;
  uint64_t saved = together.sum();
  for (int i = 0; i < SizeHistogram::kBuckets; ++i) saved -= std::min(saved, together.count(i));
  InferenceCounts counts;
  counts.succeeded = totals.succeeded;
  counts.failed = totals.failed;
  counts.rows = totals.rows;
  counts.runs = totals.succeeded - std::min(saved, totals.succeeded);
  counts.succeeded_ns = totals.succeeded_ns;
  counts.failed_ns = totals.failed_ns;
  counts.queue_ns = totals.queue_ns;
  counts.decode_ns = totals.decode_ns;
  counts.run_ns = totals.run_ns;
  counts.encode_ns = totals.encode_ns;
  counts.last_ms = totals.last_ms;
  return counts;
}

// A view of the host, with the objects that the view points to.
class Snapshot {
 public:
  Snapshot(const ActualState& actual, const RouteTable& table) {
    view_.ready = actual.state == HostState::kReady;
    for (const auto& routes : table.models()) Add(*routes, actual);
    for (const auto& [name, versions] : actual.refused) AddRefused(name, versions);
  }

  const HostView& view() const { return view_; }

 private:
  void Add(const ModelRoutes& routes, const ActualState& actual) {
    ModelView& model = view_.models.emplace_back();
    model.name = routes.name;
    model.baseline = routes.baseline_number;
    model.labels.assign(routes.labels.begin(), routes.labels.end());
    const auto versions = actual.models.find(routes.name);
    if (versions == actual.models.end()) return;
    for (const auto& [number, entry] : versions->second) {
      VersionView& version = model.versions.emplace_back();
      version.number = number;
      version.state = PhaseOf(StateNow(entry.version));
      if (version.state == VersionPhase::kFailed) version.error = FailureOf(entry.version);
      const auto route = routes.versions.find(number);
      if (route != routes.versions.end()) {
        AddServable(route->second.servable, &version);
        // The version is loaded and warm but gets no traffic, so clients must not see it as available.
        if (!route->second.traffic && version.state == VersionPhase::kReady) version.state = VersionPhase::kDraining;
      }
      if (routes.baseline != nullptr && routes.baseline->number == number) AddServable(routes.baseline, &version);
    }
  }

  // Adds versions that the control plane refused. A model may have no others.
  void AddRefused(const std::string& name, const std::map<int64_t, absl::Status>& versions) {
    std::vector<ModelView>& models = view_.models;
    auto model = std::find_if(models.begin(), models.end(), [&](const ModelView& view) { return view.name == name; });
    if (model == models.end()) {
      model = models.emplace(models.end());
      model->name = name;
    }
    std::vector<VersionView>& known = model->versions;
    for (const auto& [number, status] : versions) {
      const auto at =
          std::find_if(known.begin(), known.end(), [n = number](const VersionView& view) { return view.number >= n; });
      // The host still unloads an earlier deployment with this number.
      if (at != known.end() && at->number == number) continue;
      VersionView& version = *known.emplace(at);
      version.number = number;
      version.state = VersionPhase::kFailed;
      version.error = status;
    }
  }

  void AddServable(const std::shared_ptr<const Servable>& servable, VersionView* version) {
    if (servable == nullptr) return;
    version->sessions = servable->version->sessions();
    const BatchOptions batching = servable->version->batching();
    if (batching.mode != BatchMode::kOff) version->batch_rows = batching.max_rows;
    if (batching.mode == BatchMode::kTimed) version->batch_wait_us = batching.max_wait_us;
    version->counts = CountsOf(*servable);
    kept_.push_back(servable->version->model().version());
    if (kept_.back() != nullptr) version->signatures = &kept_.back()->signatures();
  }

  HostView view_;
  std::vector<std::shared_ptr<ModelVersion>> kept_;
};

}  // namespace

absl::Status ModelHost::Describe(HostCall& call) const {
  ModelSpecView spec;
  if (absl::Status s = SpecOf(call, &spec); !s.ok()) return s;
  const std::shared_ptr<const RouteTable> table = control_->routes();
  if (spec.name.empty() && table->models().size() == 1) spec.name = table->models().front()->name;
  const Snapshot snapshot(control_->Actual(), *table);
  Response response;
  absl::Status status = processor::Describe(*call.method, call.request().data, spec, snapshot.view(), &response);
  call.answer.bytes = std::move(response.body);
  call.answer.header_length = response.header_length;
  return status;
}

}  // namespace processor
