// SPDX-License-Identifier: Apache-2.0
#include "src/host/requests/route_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/codec/message_text.h"
#include "src/host/desired/routing.h"

namespace processor {
namespace {

absl::Status ChoosePinned(const ModelRoutes& routes, int64_t number, std::string_view asked, RouteChoice* choice) {
  const auto found = routes.versions.find(number);
  if (found == routes.versions.end()) {
    return absl::NotFoundError(absl::StrCat("model '", routes.name, "': ", asked, " not served, expected one that is"));
  }
  if (!found->second.traffic) {
    return absl::NotFoundError(
        absl::StrCat("model '", routes.name, "': ", asked, " kept without traffic, expected one that takes requests"));
  }
  if (found->second.servable == nullptr) {
    return absl::UnavailableError(absl::StrCat("model '", routes.name, "': ", asked, " is ", found->second.state,
                                               ", expected one that is ready"));
  }
  *choice = {found->second.servable, ChoiceReason::kPinned};
  return absl::OkStatus();
}

// Returns the arm that has the request's bucket; null if none has it.
const RoutingArm* FindArm(const ModelRoutes& routes, const RouteRequest& request) {
  const RoutingRules& rules = routes.rules;
  if (rules.paused || rules.arms.empty()) return nullptr;
  const std::optional<std::string> key = request.key(rules);
  const uint32_t bucket = key.has_value() ? RoutingBucket(rules.salt, *key)
                                          : KeylessBucket(routes.keyless->fetch_add(1, std::memory_order_relaxed));
  return ArmFor(bucket, rules.arms);
}

}  // namespace

const char* ChoiceName(ChoiceReason reason) {
  switch (reason) {
    case ChoiceReason::kBaseline:
      return "baseline";
    case ChoiceReason::kArm:
      return "arm";
    case ChoiceReason::kPinned:
      return "pinned";
    case ChoiceReason::kFallback:
      return "fallback";
  }
  return "";
}

absl::Status ChooseVersion(const ModelRoutes& routes, const RouteRequest& request, RouteChoice* choice) {
  const ModelSpecView& spec = request.spec;
  if (!spec.label.empty()) {
    const auto label = routes.labels.find(spec.label);
    const std::string asked = absl::StrCat("version label '", Printable(spec.label), "'");
    if (label == routes.labels.end()) {
      // As in TensorFlow Serving, an unknown label is the fault of the client, not a version that is gone.
      return absl::InvalidArgumentError(
          absl::StrCat("model '", routes.name, "': ", asked, " not there, expected one that is"));
    }
    if (spec.version.has_value() && *spec.version != label->second) {
      return absl::InvalidArgumentError(absl::StrCat("request: version ", *spec.version, " and ", asked,
                                                     ", which is version ", label->second, ", expected one of them"));
    }
    return ChoosePinned(routes, label->second, asked, choice);
  }
  if (spec.version.has_value()) {
    return ChoosePinned(routes, *spec.version, absl::StrCat("version ", *spec.version), choice);
  }
  ChoiceReason reason = ChoiceReason::kBaseline;
  if (const RoutingArm* arm = FindArm(routes, request); arm != nullptr) {
    const auto found = routes.versions.find(arm->version);
    if (found != routes.versions.end() && found->second.traffic && found->second.servable != nullptr) {
      *choice = {found->second.servable, ChoiceReason::kArm};
      return absl::OkStatus();
    }
    reason = ChoiceReason::kFallback;
  }
  if (routes.baseline == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("model '", routes.name, "': ", routes.baseline_state, ", expected a baseline that is ready"));
  }
  *choice = {routes.baseline, reason};
  return absl::OkStatus();
}

void RouteTable::Add(std::shared_ptr<const ModelRoutes> model) {
  index_.Add(model->name, static_cast<int>(models_.size()));
  models_.push_back(std::move(model));
}

absl::Status RouteTable::Find(std::string_view model, const ModelRoutes** routes) const {
  if (model.empty()) {
    if (models_.size() == 1) {
      *routes = models_.front().get();
      return absl::OkStatus();
    }
    if (models_.empty()) return absl::NotFoundError("model: none is served");
    return absl::InvalidArgumentError(
        absl::StrCat("request: no model named, expected the name of one of the ", models_.size(), " that are served"));
  }
  const int at = index_.Find(model);
  if (at < 0) {
    return absl::NotFoundError(absl::StrCat("model '", Printable(model), "': not served, expected one that is"));
  }
  *routes = models_[static_cast<size_t>(at)].get();
  return absl::OkStatus();
}

}  // namespace processor
