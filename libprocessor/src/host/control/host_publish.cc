// SPDX-License-Identifier: Apache-2.0
// What the control thread of a host tells others: requests who answers them, and the world what is served.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/base/log.h"
#include "src/host/control/host_control.h"
#include "src/host/desired/accepted_state.h"
#include "src/host/reports/host_metrics.h"
#include "src/runtime/stats/stats.h"

namespace processor {

std::shared_ptr<const RouteTable> HostControl::routes() const {
  std::lock_guard<std::mutex> lock(table_mutex_);
  return table_;
}

void HostControl::RefreshTexts(Instance& instance) {
  auto texts = std::make_shared<AnswerTexts>();
  texts->model = instance.view.model;
  texts->cpusets = instance.version->cpusets();
  instance.texts = std::move(texts);
}

void HostControl::UpdateSettings(Instance& instance, const DesiredVersion& wanted) {
  DesiredVersion& settings = instance.settings;
  if (instance.version != nullptr && !(instance.version->batching() == wanted.batching)) {
    instance.version->SetBatching(wanted.batching);
  }
  settings.batching = wanted.batching;
  settings.limits = wanted.limits;
  settings.priority = wanted.priority;
  settings.traffic = wanted.traffic;
  if (wanted.cpuset == instance.cpuset || instance.version == nullptr) return;
  instance.cpuset = wanted.cpuset;
  instance.cpuset_error = instance.version->SetCpuset(wanted.cpuset);
  if (!instance.cpuset_error.ok()) {
    Log(Severity::kError, absl::StrCat("model '", instance.view.model, "' version ", instance.view.number, ": ",
                                       instance.cpuset_error.message(), "; it stays where it is"));
  }
  RefreshTexts(instance);
}

void HostControl::SettleServing(const Plan& plan) {
  baselines_.clear();
  std::set<int> of_baselines, of_others;
  bool apart = true;
  for (const auto& [name, model] : plan.models) {
    if (model.baseline.has_value()) baselines_[name] = *model.baseline;
    for (const auto& [number, id] : model.serving) {
      Instance& instance = At(id);
      const DesiredVersion& wanted = desired_.models.at(name).versions.at(number);
      // Beside an entry that is wrong the version goes on as it was.
      if (wanted.fault.ok()) UpdateSettings(instance, wanted);
      const CpuSet cpus = instance.version->model().slots().Cpus();
      apart = apart && !cpus.empty() && instance.version->model().execution() == Execution::kPinned;
      (id == model.baseline ? of_baselines : of_others).insert(cpus.begin(), cpus.end());
    }
  }
  for (int cpu : of_others) of_baselines.erase(cpu);
  reserved_cpus_.clear();
  if (apart) reserved_cpus_.assign(of_baselines.begin(), of_baselines.end());
}

std::shared_ptr<const Servable> HostControl::MakeServable(const Instance& instance, bool is_baseline,
                                                          const std::shared_ptr<ModelLog>& log) const {
  auto servable = std::make_shared<Servable>();
  servable->version = instance.version;
  servable->instance = CancelNumber(instance.view.id);
  servable->number = instance.view.number;
  servable->is_baseline = is_baseline;
  servable->priority = instance.settings.priority;
  servable->limits = instance.settings.limits;
  servable->texts = instance.texts;
  servable->stats = instance.stats;
  servable->log = log;
  return servable;
}

void HostControl::Publish(const Plan& plan) {
  auto table = std::make_shared<RouteTable>();
  for (const auto& [name, planned] : plan.models) {
    const DesiredModel& desired = desired_.models.at(name);
    auto routes = std::make_shared<ModelRoutes>();
    routes->name = name;
    routes->baseline_number = desired.baseline;
    routes->labels.insert(desired.labels.begin(), desired.labels.end());
    routes->rules = desired.routing;
    std::shared_ptr<std::atomic<uint64_t>>& keyless = keyless_[name];
    if (keyless == nullptr) keyless = std::make_shared<std::atomic<uint64_t>>(0);
    routes->keyless = keyless;
    routes->log = request_log_.Of(name, desired.request_log);
    if (planned.baseline.has_value()) {
      routes->baseline = MakeServable(At(*planned.baseline), true, routes->log);
      routes->baseline_number = routes->baseline->number;
      routes->shadows = MakeShadows(name, routes->baseline->number, desired.shadow);
    }
    for (const auto& [number, version] : desired.versions) {
      VersionRoute& route = routes->versions[number];
      route.traffic = version.traffic;
      const auto serving = planned.serving.find(number);
      if (serving != planned.serving.end()) {
        if (!version.fault.ok()) route.traffic = At(serving->second).settings.traffic;
        const bool is_baseline = planned.baseline == serving->second;
        route.servable = is_baseline ? routes->baseline : MakeServable(At(serving->second), false, routes->log);
        continue;
      }
      const auto incoming = planned.incoming.find(number);
      route.state = VersionStateName(incoming == planned.incoming.end() ? VersionState::kLoading
                                                                        : At(incoming->second).view.state);
      if (number == desired.baseline) routes->baseline_state = absl::StrCat("version ", number, " is ", route.state);
    }
    table->Add(std::move(routes));
  }
  EndLanesOutside(*table);
  request_log_.Keep(desired_.models);
  std::shared_ptr<const RouteTable> old = std::move(table);
  {
    std::lock_guard<std::mutex> lock(table_mutex_);
    old.swap(table_);
  }
  // Freed here, not by the last request that looks into it.
  old_tables_.push_back(std::move(old));
}

ActualVersion HostControl::Describe(const Instance& instance) const {
  ActualVersion actual;
  actual.state = instance.view.state;
  actual.path = instance.path.empty() ? instance.settings.path : instance.path;
  actual.since = instance.since;
  actual.load_ms = instance.load_ms;
  actual.memory_bytes = instance.memory.total();
  const absl::Status& error = instance.error.ok() ? instance.cpuset_error : instance.error;
  actual.failure = instance.error;
  if (!error.ok()) actual.error = absl::StrCat(absl::StatusCodeToString(error.code()), ": ", error.message());
  if (instance.view.state == VersionState::kFailed && instance.lane.has_value()) {
    absl::StrAppend(&actual.error, "; a step of it that cannot be interrupted still runs, in one of ", kLoadLanes,
                    " lanes");
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

void HostControl::UpdateActual(const Plan& plan) {
  std::map<std::string, std::map<int64_t, ActualEntry>> models;
  std::vector<const MemoryEstimate*> loaded;
  for (const auto& [id, instance] : instances_) {
    if (instance->view.state == VersionState::kReady || instance->view.state == VersionState::kDraining) {
      loaded.push_back(&instance->memory);
    }
    // What ends is told of as long as nothing else has its number.
    if (instance->view.state == VersionState::kDraining) {
      models[instance->view.model][instance->view.number].version = Describe(*instance);
    }
  }
  for (const auto& [name, planned] : plan.models) {
    std::map<int64_t, ActualEntry>& versions = models[name];
    if (planned.baseline.has_value()) {
      const Instance& baseline = At(*planned.baseline);
      versions[baseline.view.number].version = Describe(baseline);
    }
    for (const auto& [number, version] : desired_.models.at(name).versions) {
      ActualEntry& entry = versions[number];
      const auto serving = planned.serving.find(number);
      const auto incoming = planned.incoming.find(number);
      const bool comes = incoming != planned.incoming.end();
      if (serving != planned.serving.end()) {
        entry.version = Describe(At(serving->second));
        if (comes) entry.replacement = Describe(At(incoming->second));
      } else if (comes) {
        entry.version = Describe(At(incoming->second));
      } else if (entry.version.path.empty()) {
        entry.version.path = version.path;  // its turn has not come
        entry.version.since = WallClockText();
      }
    }
  }
  // Those whose turn has not come: nobody shall think that what they replace is what is desired.
  for (const VersionToLoad& load : plan.load) {
    const ModelPlan& planned = plan.models.at(load.model);
    if (planned.serving.count(load.number) == 0 || planned.incoming.count(load.number) > 0) continue;
    ActualVersion& waits = models[load.model][load.number].replacement.emplace();
    waits.path = desired_.models.at(load.model).versions.at(load.number).path;
    waits.since = WallClockText();
  }
  std::vector<HostStats::Key> known;
  for (const auto& [name, versions] : models) {
    for (const auto& [number, entry] : versions) known.emplace_back(name, number);
  }
  stats_.Keep(known);
  std::lock_guard<std::mutex> lock(actual_mutex_);
  actual_.models = std::move(models);
  actual_.refused = desired_.refused;
  actual_.generation = desired_.generation;
  actual_.memory_bytes = MemoryInUse(loaded);
  actual_.stuck_loads = StuckLoads();
  actual_.memory_limit_bytes = memory_limit_;
  if (actual_.state == HostState::kStarting && started_) actual_.state = HostState::kReady;
  actual_dirty_ = true;
}

ActualState HostControl::Actual() const {
  std::lock_guard<std::mutex> lock(actual_mutex_);
  return actual_;
}

void HostControl::SetEndpoint(const std::string& name, const std::string& address) {
  std::lock_guard<std::mutex> lock(actual_mutex_);
  if (address.empty()) {
    actual_.endpoints.erase(name);
  } else {
    actual_.endpoints[name] = address;
  }
  actual_dirty_ = true;
}

absl::Status HostControl::ClaimPort(const std::string& address, int port) {
  PortClaim claim;
  const absl::Status status = PortClaim::Take(address, port, directory_->path(), &claim);
  if (absl::IsAlreadyExists(status) || absl::IsInvalidArgument(status)) return status;
  if (!status.ok()) {
    // Where nothing can be written, as in some containers, hosts serve all the same.
    Log(Severity::kWarning, absl::StrCat(status.message(), "; nobody sees to who else listens at port ", port));
    return absl::OkStatus();
  }
  std::lock_guard<std::mutex> lock(ports_mutex_);
  ports_.push_back(std::move(claim));
  return absl::OkStatus();
}

void HostControl::SetDraining() {
  PrepareEnd();
  std::lock_guard<std::mutex> lock(actual_mutex_);
  actual_.state = HostState::kDraining;
  actual_dirty_ = true;
}

void HostControl::WriteAccepted() {
  if (!accepted_dirty_ || NowNs() < write_accepted_ns_) return;
  // A failure is told of where actual.json fails, on the same disk.
  const absl::Status status = directory_->WriteHostFile(kAcceptedFile, accepted_, /*durable=*/true);
  accepted_dirty_ = !status.ok();
  if (!status.ok()) write_accepted_ns_ = NowNs() + kSecondNs;
}

void HostControl::WriteActual() {
  if (NowNs() < write_again_ns_) return;
  std::string text;
  {
    std::lock_guard<std::mutex> lock(actual_mutex_);
    bool warming = false;
    for (const auto& [id, instance] : instances_) {
      warming |= instance->view.state == VersionState::kLoading && instance->progress != nullptr &&
                 instance->progress->warming.load();
    }
    if (!actual_dirty_ && warming == written_warming_) return;
    text = ActualJson(actual_) + "\n";
    actual_dirty_ = false;
    written_warming_ = warming;
  }
  const absl::Status status = directory_->WriteHostFile("actual.json", text, /*durable=*/true);
  if (!status.ok()) {
    // Once per fault, not once per attempt.
    if (write_error_ != status.message()) Log(Severity::kError, absl::StrCat(status.message(), "; tried again"));
    write_again_ns_ = NowNs() + kSecondNs;
    std::lock_guard<std::mutex> lock(actual_mutex_);
    actual_dirty_ = true;
  }
  write_error_ = status.ok() ? "" : std::string(status.message());
}

void HostControl::WriteStats() {
  if (NowNs() < write_stats_ns_) return;
  write_stats_ns_ = NowNs() + kSecondNs;
  // A failure is told of where actual.json fails, on the same disk.
  directory_->WriteHostFile("stats.json", HostStatsJson(Actual(), *routes(), stats_) + "\n", /*durable=*/false)
      .IgnoreError();
  if (!lanes_.empty()) directory_->WriteHostFile("shadow.json", ShadowText() + "\n", /*durable=*/false).IgnoreError();
}

}  // namespace processor
