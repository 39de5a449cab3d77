// SPDX-License-Identifier: Apache-2.0
#include "src/host/control/actual_file.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/base/log.h"
#include "src/host/control/load_lanes.h"
#include "src/host/versions/host_features.h"
#include "src/host/versions/memory_budget.h"
#include "src/runtime/stats/stats.h"

namespace processor {
namespace {

ActualVersion DescribeInstance(const Instance& instance) {
  ActualVersion actual;
  actual.state = instance.view.state;
  actual.path = instance.path.empty() ? instance.settings.path : instance.path;
  actual.since = instance.since;
  actual.load_ms = instance.load_ms;
  actual.memory_bytes = instance.memory.total();
  const absl::Status& error = instance.error.ok() ? instance.cpuset_error : instance.error;
  actual.failure = instance.error;
  actual.error = instance.follow_error;
  if (!error.ok()) actual.error = absl::StrCat(absl::StatusCodeToString(error.code()), ": ", error.message());
  if (instance.view.state == VersionState::kFailed && instance.lane.has_value()) {
    absl::StrAppend(&actual.error, "; a step of it that cannot be interrupted still runs, in one of ",
                    LoadLanes::kLastLane, " lanes");
  }
  if (instance.view.state == VersionState::kLoading) actual.progress = instance.progress;
  if (instance.version != nullptr) {
    actual.sessions = instance.version->sessions();
    actual.cpuset = absl::StrJoin(instance.version->model().slots().Cpusets(), ";");
    if (actual.cpuset.find_first_not_of(';') == std::string::npos) actual.cpuset.clear();
    actual.precision = instance.version->precision();
    actual.warmup = instance.version->warmup();
    actual.load = instance.version->shared_load();
  }
  return actual;
}

// Describes a version that waits to be loaded.
ActualVersion DescribeWaiting(const DesiredVersion& version) {
  ActualVersion actual;
  actual.path = version.path;
  actual.since = WallClockText();
  return actual;
}

void DescribeModel(const ModelPlan& planned, const DesiredModel& desired, const Instances& instances,
                   std::map<int64_t, ActualEntry>* versions) {
  if (planned.baseline.has_value()) {
    const Instance& baseline = instances.At(*planned.baseline);
    (*versions)[baseline.view.number].version = DescribeInstance(baseline);
  }
  for (const auto& [number, version] : desired.versions) {
    ActualEntry& entry = (*versions)[number];
    const auto serving = planned.serving.find(number);
    const auto incoming = planned.incoming.find(number);
    const bool comes = incoming != planned.incoming.end();
    if (serving != planned.serving.end()) {
      entry.version = DescribeInstance(instances.At(serving->second));
      if (comes) entry.replacement = DescribeInstance(instances.At(incoming->second));
    } else if (comes) {
      entry.version = DescribeInstance(instances.At(incoming->second));
    } else if (entry.version.path.empty()) {
      entry.version = DescribeWaiting(version);
    }
  }
}

}  // namespace

ActualModels DescribeModels(const Plan& plan, const DesiredState& desired, const Instances& instances) {
  ActualModels models;
  // A version that is being unloaded is listed as long as no other has its number.
  for (const auto& [id, instance] : instances.all()) {
    if (instance->view.state != VersionState::kDraining) continue;
    models[instance->view.model][instance->view.number].version = DescribeInstance(*instance);
  }
  for (const auto& [name, planned] : plan.models) {
    DescribeModel(planned, desired.models.at(name), instances, &models[name]);
  }
  // A replacement that waits is listed too, or the version that it replaces would seem to be the desired one.
  for (const VersionToLoad& load : plan.load) {
    const ModelPlan& planned = plan.models.at(load.model);
    if (planned.serving.count(load.number) == 0 || planned.incoming.count(load.number) > 0) continue;
    const DesiredVersion& wanted = desired.models.at(load.model).versions.at(load.number);
    models[load.model][load.number].replacement = DescribeWaiting(wanted);
  }
  return models;
}

ActualFile::ActualFile(const StateDirectory* directory, const std::string& host_id) : directory_(*directory) {
  state_.host = host_id;
  state_.started = WallClockText();
  state_.version = PROCESSOR_VERSION;
  state_.features = HostFeatures();
  state_.cpus = state_.front_end_cpus = FormatCpuset(AllowedCpus());
}

ActualState ActualFile::Get() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return state_;
}

bool ActualFile::has_endpoints() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return !state_.endpoints.empty();
}

void ActualFile::SetEndpoint(const std::string& name, const std::string& address) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (address.empty()) {
    state_.endpoints.erase(name);
  } else {
    state_.endpoints[name] = address;
  }
  dirty_ = true;
}

void ActualFile::SetDraining() {
  std::lock_guard<std::mutex> lock(mutex_);
  state_.state = HostState::kDraining;
  dirty_ = true;
}

void ActualFile::SetDesiredError(const std::string& error) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (error == state_.desired_error) return;
    state_.desired_error = error;
    dirty_ = true;
  }
  if (!error.empty()) Log(Severity::kError, error);
}

void ActualFile::SetWaiting(const std::string& waiting) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (waiting == state_.waiting) return;
    state_.waiting = waiting;
    dirty_ = true;
  }
  if (!waiting.empty()) Log(Severity::kInfo, absl::StrCat("desired.json: waits ", waiting));
}

void ActualFile::SetFrontEndCpus(const CpuSet& cpus) {
  std::lock_guard<std::mutex> lock(mutex_);
  state_.front_end_cpus = FormatCpuset(cpus.empty() ? AllowedCpus() : cpus);
  dirty_ = true;
}

void ActualFile::SetModels(ActualModels models, const DesiredState& desired, const Instances& instances,
                           int64_t memory_limit, bool ready) {
  std::vector<const MemoryEstimate*> loaded;
  for (const auto& [id, instance] : instances.all()) {
    const VersionState state = instance->view.state;
    if (state == VersionState::kReady || state == VersionState::kDraining) loaded.push_back(&instance->memory);
  }
  std::lock_guard<std::mutex> lock(mutex_);
  state_.models = std::move(models);
  state_.refused = desired.refused;
  state_.generation = desired.generation;
  state_.memory_bytes = MemoryInUse(loaded);
  state_.stuck_loads = instances.StuckLoads();
  state_.memory_limit_bytes = memory_limit;
  if (state_.state == HostState::kStarting && ready) state_.state = HostState::kReady;
  dirty_ = true;
}

void ActualFile::Write(const Instances& instances) {
  if (NowNs() < write_at_ns_) return;
  bool warming = false;
  for (const auto& [id, instance] : instances.all()) {
    warming |= instance->view.state == VersionState::kLoading && instance->progress != nullptr &&
               instance->progress->warming.load();
  }
  std::string text;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!dirty_ && warming == written_warming_) return;
    text = ActualJson(state_) + "\n";
    dirty_ = false;
    written_warming_ = warming;
  }
  // After a loss of power no host runs, and the next one writes its own; the memory of live models changes each second.
  const absl::Status status = directory_.WriteHostFile("actual.json", text, /*durable=*/false);
  if (!status.ok()) {
    // A failure is logged once, not at each attempt.
    if (write_error_ != status.message()) Log(Severity::kError, absl::StrCat(status.message(), "; tried again"));
    write_at_ns_ = NowNs() + kSecondNs;
    std::lock_guard<std::mutex> lock(mutex_);
    dirty_ = true;
  }
  write_error_ = status.ok() ? "" : std::string(status.message());
}

}  // namespace processor
