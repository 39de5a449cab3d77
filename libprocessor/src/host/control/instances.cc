// SPDX-License-Identifier: Apache-2.0
#include "src/host/control/instances.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/host/reports/actual_state.h"
#include "src/runtime/stats/stats.h"

namespace processor {

std::string Instance::Name() const { return absl::StrCat("model '", view.model, "' version ", view.number); }

void Instance::RefreshTexts() {
  auto made = std::make_shared<AnswerTexts>();
  made->model = view.model;
  made->cpusets = version->cpusets();
  texts = std::move(made);
}

Instance& Instances::Add(const std::string& model, int64_t number, const DesiredVersion& wanted) {
  auto made = std::make_unique<Instance>();
  made->view = {next_id_++, model, number, wanted.Identity(), VersionState::kLoading, false};
  made->settings = wanted;
  made->cpuset = wanted.cpuset;
  return *(instances_[made->view.id] = std::move(made));
}

Instance* Instances::Find(uint64_t id) const {
  const auto found = instances_.find(id);
  return found == instances_.end() ? nullptr : found->second.get();
}

void Instances::SetState(Instance& instance, VersionState state) {
  instance.view.state = state;
  instance.since = WallClockText();
  instance.since_ns = NowNs();
  changed_ = true;
}

void Instances::SetVersion(Instance& instance, std::unique_ptr<HostedVersion> version) {
  instance.version = std::move(version);
  std::lock_guard<std::mutex> lock(versions_mutex_);
  versions_[instance.CancelNumber()] = instance.version;
}

std::shared_ptr<HostedVersion> Instances::TakeUnusedVersion(Instance& instance) {
  // While the lock is held, no reference can be added: the route table has none, and FindVersion() waits.
  std::lock_guard<std::mutex> lock(versions_mutex_);
  if (instance.version.use_count() != 1) return nullptr;
  versions_.erase(instance.CancelNumber());
  return std::move(instance.version);
}

std::vector<VersionInstance> Instances::Views() const {
  std::vector<VersionInstance> views;
  for (const auto& [id, instance] : instances_) {
    if (!instance->given_up) views.push_back(instance->view);
  }
  return views;
}

bool Instances::AnyDraining() const {
  return std::any_of(instances_.begin(), instances_.end(),
                     [](const auto& item) { return item.second->view.state == VersionState::kDraining; });
}

bool Instances::HoldsLane(int lane) const {
  return std::any_of(instances_.begin(), instances_.end(), [&](const auto& item) { return item.second->lane == lane; });
}

int Instances::StuckLoads() const {
  return static_cast<int>(std::count_if(instances_.begin(), instances_.end(), [](const auto& item) {
    return item.second->lane.has_value() && !item.second->IsLoading();
  }));
}

std::shared_ptr<HostedVersion> Instances::FindVersion(uint16_t cancel_number) const {
  std::lock_guard<std::mutex> lock(versions_mutex_);
  const auto found = versions_.find(cancel_number);
  return found == versions_.end() ? nullptr : found->second.lock();
}

}  // namespace processor
