// SPDX-License-Identifier: Apache-2.0
#include "src/host/control/reconcile.h"

#include <algorithm>
#include <set>
#include <utility>

namespace processor {
namespace {

bool IsUnderWay(const VersionInstance& instance) {
  return instance.state == VersionState::kLoading || instance.state == VersionState::kWarming;
}

using InstanceList = std::vector<const VersionInstance*>;

// The instances of one desired version.
struct FoundInstance {
  const VersionInstance* ready = nullptr;      // in the desired configuration
  const VersionInstance* former = nullptr;     // ready in another configuration: the instance to replace
  const VersionInstance* under_way = nullptr;  // in the desired configuration
  const VersionInstance* failed = nullptr;     // as desired
};

FoundInstance Find(const InstanceList& instances, const DesiredVersion& wanted) {
  const std::string identity = wanted.Identity();
  FoundInstance found;
  for (const VersionInstance* instance : instances) {
    const bool same = instance->identity == identity;
    if (instance->state == VersionState::kReady) {
      // The latest of several counts: the earlier ones are being unloaded.
      const VersionInstance*& place = same ? found.ready : found.former;
      if (place == nullptr || place->id < instance->id) place = instance;
    } else if (same && IsUnderWay(*instance)) {
      found.under_way = instance;
    } else if (same && instance->state == VersionState::kFailed) {
      found.failed = instance;
    }
  }
  return found;
}

// Returns the instance that serves as a model's baseline now, if it still can.
const VersionInstance* FormerBaseline(const std::vector<VersionInstance>& instances,
                                      const std::map<std::string, uint64_t>& baselines, const std::string& model) {
  const auto id = baselines.find(model);
  if (id == baselines.end()) return nullptr;
  const auto found = std::find_if(instances.begin(), instances.end(),
                                  [&](const VersionInstance& instance) { return instance.id == id->second; });
  return found != instances.end() && found->state == VersionState::kReady ? &*found : nullptr;
}

}  // namespace

Plan Reconcile(const DesiredState& desired, const std::vector<VersionInstance>& instances,
               const std::map<std::string, uint64_t>& baselines) {
  std::map<std::pair<std::string, int64_t>, InstanceList> by_version;
  for (const VersionInstance& instance : instances) by_version[{instance.model, instance.number}].push_back(&instance);

  Plan plan;
  std::set<uint64_t> wanted;
  std::vector<std::pair<int, VersionToLoad>> to_load;
  for (const auto& [name, model] : desired.models) {
    ModelPlan& serving = plan.models[name];
    for (const auto& [number, version] : model.versions) {
      const FoundInstance found = Find(by_version[{name, number}], version);
      const VersionInstance* const serves = found.ready != nullptr ? found.ready : found.former;
      const VersionInstance* const incoming = found.ready != nullptr       ? nullptr
                                              : found.under_way != nullptr ? found.under_way
                                                                           : found.failed;
      if (serves != nullptr) {
        serving.serving[number] = serves->id;
        wanted.insert(serves->id);
        if (number == model.baseline) serving.baseline = serves->id;
      }
      if (incoming != nullptr) {
        serving.incoming[number] = incoming->id;
        wanted.insert(incoming->id);
      }
      if (found.ready != nullptr || found.under_way != nullptr) continue;
      if (found.failed != nullptr && !found.failed->retry_due) continue;
      const bool is_baseline = number == model.baseline;
      VersionToLoad load = {name, number, std::nullopt};
      if (found.failed != nullptr) load.instead_of = found.failed->id;
      // Baselines of models that serve nothing yet are loaded first.
      const int rank = !is_baseline ? 2 : serves != nullptr || baselines.count(name) > 0 ? 1 : 0;
      to_load.emplace_back(rank, std::move(load));
    }
    if (serving.baseline.has_value()) continue;
    if (const VersionInstance* const former = FormerBaseline(instances, baselines, name); former != nullptr) {
      serving.baseline = former->id;
      wanted.insert(former->id);
    }
  }
  for (const VersionInstance& instance : instances) {
    if (wanted.count(instance.id) > 0) continue;
    if (instance.state == VersionState::kReady) plan.retire.push_back(instance.id);
    if (instance.state == VersionState::kFailed) plan.forget.push_back(instance.id);
    if (IsUnderWay(instance)) plan.give_up.push_back(instance.id);
  }
  std::stable_sort(to_load.begin(), to_load.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [rank, load] : to_load) plan.load.push_back(std::move(load));
  return plan;
}

}  // namespace processor
