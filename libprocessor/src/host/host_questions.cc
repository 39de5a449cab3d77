// SPDX-License-Identifier: Apache-2.0
// What a host answers of itself: the methods that run no model.
#include <memory>
#include <vector>

#include "src/codec/descriptions.h"
#include "src/host/model_host.h"

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

// A view of the host with what it points into.
class Snapshot {
 public:
  Snapshot(const ActualState& actual, const RouteTable& table) {
    view_.ready = actual.state == HostState::kReady;
    for (const auto& routes : table.models()) Add(*routes, actual);
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
      if (version.state == VersionPhase::kFailed) version.error = absl::UnknownError(entry.version.error);
      const auto route = routes.versions.find(number);
      if (route != routes.versions.end()) {
        AddSignatures(route->second.servable, &version);
        // Loaded and warm, but no request may choose it: whoever asks what is available must not be told that it is.
        if (!route->second.traffic && version.state == VersionPhase::kReady) version.state = VersionPhase::kDraining;
      }
      if (routes.baseline != nullptr && routes.baseline->number == number) AddSignatures(routes.baseline, &version);
    }
  }

  void AddSignatures(const std::shared_ptr<const Servable>& servable, VersionView* version) {
    if (servable == nullptr) return;
    kept_.push_back(servable->version->model().version());
    if (kept_.back() != nullptr) version->signatures = &kept_.back()->signatures();
  }

  HostView view_;
  std::vector<std::shared_ptr<ModelVersion>> kept_;
};

}  // namespace

absl::Status ModelHost::Describe(HostCall& call) const {
  const HostRequest& request = call.request();
  ModelSpecView spec;
  if (absl::Status s = SpecOf(request, &spec); !s.ok()) return s;
  const std::shared_ptr<const RouteTable> table = control_->routes();
  if (spec.name.empty() && table->models().size() == 1) spec.name = table->models().front()->name;
  const Snapshot snapshot(control_->Actual(), *table);
  Response response;
  absl::Status status =
      processor::Describe(request.protocol, call.method->name, request.data, spec, snapshot.view(), &response);
  call.answer.bytes = std::move(response.body);
  call.answer.header_length = response.header_length;
  return status;
}

}  // namespace processor
