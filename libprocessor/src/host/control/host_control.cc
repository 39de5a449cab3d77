// SPDX-License-Identifier: Apache-2.0
#include "src/host/control/host_control.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/log.h"
#include "src/host/reports/host_metrics.h"
#include "src/runtime/requests/exception_status.h"
#include "src/runtime/stats/stats.h"
#include "src/runtime/threads/process_threads.h"

namespace processor {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(100);
// How often versions that are being unloaded are checked, so that their memory is freed soon.
constexpr auto kPollDraining = std::chrono::milliseconds(10);
// Versions known to be good serve for so long before a suspect is loaded, unless the host has published an endpoint.
constexpr int64_t kServesFirstNs = 2 * kSecondNs;
// Memory of changed rows is reported when it differs by more than this part.
constexpr int64_t kNoticedPart = 16;

absl::Status Ending() { return StatusWithoutThrowing(absl::StatusCode::kCancelled, "request: the host is ending"); }

}  // namespace

HostControl::HostControl(const HostOptions& options, std::unique_ptr<StateDirectory> directory)
    : host_id_(options.host_id),
      owns_process_(options.owns_process),
      directory_(std::move(directory)),
      request_log_(directory_->host_path() + "/requests"),
      actual_(directory_.get(), host_id_),
      desired_(directory_.get(), host_id_),
      publisher_(&instances_, &request_log_),
      front_end_(options.owns_process),
      loader_(directory_.get(), &desired_, &instances_, &stats_, options.maintenance_cpus, [this] { Wake(); }) {}

absl::Status HostControl::Start(const HostOptions& options, std::unique_ptr<HostControl>* control) {
  if (options.maintenance_cpus.has_value() && !options.maintenance_cpus->empty()) {
    std::vector<CpuSet> groups;
    if (absl::Status s = ParseCpusets(*options.maintenance_cpus, 1, AllowedCpus(), &groups); !s.ok()) {
      return absl::Status(s.code(), absl::StrCat("maintenance_cpus: ", s.message()));
    }
  }
  std::unique_ptr<StateDirectory> directory;
  if (absl::Status s = StateDirectory::Open(options.state_dir, options.host_id, &directory); !s.ok()) return s;
  std::unique_ptr<HostControl> made(new HostControl(options, std::move(directory)));
  // The first turn runs before the first request: a host without desired.json is ready at once, and one with it is
  // starting.
  made->Tick();
  made->thread_ = std::thread([raw = made.get()] { raw->Run(); });
  *control = std::move(made);
  return absl::OkStatus();
}

HostControl::~HostControl() {
  Stop();
  CloseVersions(/*stop_requests=*/false);
}

absl::Status HostControl::ClaimPort(const std::string& address, int port) {
  PortClaim claim;
  const absl::Status status = PortClaim::Take(address, port, directory_->path(), &claim);
  if (absl::IsAlreadyExists(status) || absl::IsInvalidArgument(status)) return status;
  if (!status.ok()) {
    // If the folder cannot be written, as in some containers, the host serves nevertheless.
    Log(Severity::kWarning, absl::StrCat(status.message(), "; other hosts are not kept from listening at port ", port));
    return absl::OkStatus();
  }
  std::lock_guard<std::mutex> lock(ports_mutex_);
  ports_.push_back(std::move(claim));
  return absl::OkStatus();
}

void HostControl::PrepareEnd() {
  std::lock_guard<std::mutex> lock(wake_mutex_);
  ending_ = true;
  woken_ = true;
  wake_.notify_all();
}

void HostControl::SetDraining() {
  PrepareEnd();
  actual_.SetDraining();
}

void HostControl::Wake() {
  {
    std::lock_guard<std::mutex> lock(wake_mutex_);
    woken_ = true;
  }
  // Without the lock, so that the woken thread does not wait for it at once.
  wake_.notify_all();
}

void HostControl::Stop() noexcept {
  {
    std::lock_guard<std::mutex> lock(wake_mutex_);
    if (stop_) return;
    stop_ = true;
    wake_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  // The control thread has ended, so this thread may use its objects.
  loader_.EndAll();
  loader_.WriteRecords();
  loader_.Wait();
}

void HostControl::CloseVersions(bool stop_requests) noexcept {
  loader_.DropLoaded();
  publisher_.StopShadows();
  // All versions refuse requests first, so that their drain times run in parallel.
  for (const auto& [id, instance] : instances_.all()) {
    if (instance->version != nullptr) instance->version->model().Refuse();
  }
  const int64_t begin_ns = NowNs();
  for (const auto& [id, instance] : instances_.all()) {
    if (instance->version == nullptr) continue;
    Model& model = instance->version->model();
    const double seconds = stop_requests ? 0 : model.config().drain_seconds;
    while (instance->version->load().in_flight.load() > 0 && static_cast<double>(NowNs() - begin_ns) < 1e9 * seconds) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    model.StopRequests(Ending());
  }
  for (const auto& [id, instance] : instances_.all()) {
    if (instance->version != nullptr) instance->version->model().Close();
  }
  publisher_.Clear();
}

void HostControl::Run() {
  pthread_setname_np(pthread_self(), "host-control");
  KeepThreadInPlace();
  std::unique_lock<std::mutex> lock(wake_mutex_);
  while (!stop_) {
    wake_.wait_for(lock, instances_.AnyDraining() ? kPollDraining : kPoll,
                   [this] { return stop_ || woken_ || instances_.changed(); });
    if (stop_) return;
    woken_ = false;
    const bool ending = ending_;
    lock.unlock();
    if (ending && !loader_.ended()) loader_.EndAll();
    const absl::Status status = Attempt([this] { return Tick(), absl::OkStatus(); });
    // The likely cause is a lack of memory; the next turn tries again.
    if (!status.ok()) {
      publish_again_ = true;
      Log(Severity::kError, status.message());
    }
    lock.lock();
  }
}

void HostControl::Tick() {
  if (desired_.Read()) {
    loader_.KeepDesired();
    instances_.MarkChanged();
  }
  actual_.SetDesiredError(desired_.error());
  actual_.SetWaiting(desired_.waiting());
  loader_.Collect();
  const int64_t now_ns = NowNs();
  loader_.EndLateLoads(now_ns);
  loader_.MarkRetries(now_ns);
  UpdateFollowErrors();
  CountChangedRows(now_ns);
  Apply();
  loader_.WriteRecords();
  StopLateRequests(now_ns);
  PlaceFrontEnd(NowNs());
  desired_.WriteAccepted();
  actual_.Write(instances_);
  WriteStats();
}

void HostControl::Apply() {
  const Plan plan = Reconcile(desired_.state(), instances_.Views(), baselines_);
  Retire(plan);
  const bool changed = instances_.TakeChanged() || publish_again_;
  if (changed) {
    UpdateServing(plan);
    publisher_.Publish(plan, desired_.state());
    if (desired_.known() && desired_.error().empty()) loader_.RemoveUnusedDeltas();
  }
  publisher_.DestroyUnused();
  // Loads and unloads change states of versions, which the next turn publishes.
  loader_.StartUnload();
  loader_.StartLoads(plan.load, HasServed());
  if (desired_.state().drained) EndDrained();
  // A host that cannot follow desired.json is not ready, unless it knows what it served before.
  if (!started_ && desired_.known() && !desired_.state().drained && loader_.IsSettled(plan)) {
    started_ = true;
    started_ns_ = NowNs();
    instances_.MarkChanged();
  }
  if (std::exchange(memory_changed_, false) || changed || instances_.changed()) UpdateActual(plan);
  publish_again_ = false;
}

// Ends the process as a signal to end does, so that what is behind it, such as the program that receives requests, ends
// in order: not ready, no new connections, the last requests. Whatever starts it again gets a host that is not ready.
void HostControl::EndDrained() {
  if (!started_ || !owns_process_ || asked_to_end_) return;
  asked_to_end_ = true;
  Log(Severity::kInfo, "desired.json: this host is drained, and ends after its requests");
  kill(getpid(), SIGTERM);
}

// Ends the instances that are no longer desired.
void HostControl::Retire(const Plan& plan) {
  for (const uint64_t id : plan.retire) instances_.SetState(instances_.At(id), VersionState::kDraining);
  for (const uint64_t id : plan.forget) {
    instances_.MarkChanged();
    // A load beyond its time limit may still run.
    if (instances_.At(id).lane.has_value()) {
      loader_.GiveUp(instances_.At(id));
    } else {
      instances_.Erase(id);
    }
  }
  for (const uint64_t id : plan.give_up) loader_.GiveUp(instances_.At(id));
}

void HostControl::UpdateServing(const Plan& plan) {
  baselines_.clear();
  std::set<int> of_baselines, of_others;
  bool apart = true;
  for (const auto& [name, model] : plan.models) {
    if (model.baseline.has_value()) baselines_[name] = *model.baseline;
    for (const auto& [number, id] : model.serving) {
      Instance& instance = instances_.At(id);
      const DesiredVersion& wanted = desired_.state().models.at(name).versions.at(number);
      // A wrong entry leaves the version as it was.
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

void HostControl::UpdateSettings(Instance& instance, const DesiredVersion& wanted) {
  DesiredVersion& settings = instance.settings;
  if (instance.version != nullptr && !(instance.version->batching() == wanted.batching)) {
    instance.version->SetBatching(wanted.batching);
  }
  settings.batching = wanted.batching;
  if (instance.version != nullptr) instance.version->HoldEpoch(wanted.epoch);
  settings.epoch = wanted.epoch;
  settings.limits = wanted.limits;
  settings.priority = wanted.priority;
  settings.traffic = wanted.traffic;
  if (wanted.cpuset == instance.cpuset || instance.version == nullptr) return;
  instance.cpuset = wanted.cpuset;
  instance.cpuset_error = instance.version->SetCpuset(wanted.cpuset);
  if (!instance.cpuset_error.ok()) {
    Log(Severity::kError,
        absl::StrCat(instance.Name(), ": ", instance.cpuset_error.message(), "; it stays where it is"));
  }
  instance.RefreshTexts();
}

void HostControl::UpdateFollowErrors() {
  for (const auto& [id, instance] : instances_.all()) {
    std::string error = instance->version == nullptr ? "" : instance->version->model().FollowError();
    if (error == instance->follow_error) continue;
    instance->follow_error = std::move(error);
    instances_.MarkChanged();
  }
}

// Counts the memory of rows that deltas have changed. A small difference is not worth a report.
void HostControl::CountChangedRows(int64_t now_ns) {
  using Sizes = std::map<const void*, int64_t>;
  // A version that has become ready counts before another one is loaded beside it.
  if (now_ns < count_changed_rows_at_ns_ && !instances_.changed()) return;
  count_changed_rows_at_ns_ = now_ns + kSecondNs;
  const auto sum = [](const Sizes& sizes) {
    int64_t bytes = 0;
    for (const auto& [overlay, size] : sizes) bytes += size;
    return bytes;
  };
  const auto same = [](const auto& a, const auto& b) { return a.first == b.first; };
  for (const auto& [id, instance] : instances_.all()) {
    std::shared_ptr<ModelVersion> version;
    if (instance->version != nullptr) version = instance->version->model().version();
    Sizes sizes;
    if (version != nullptr && version->live() != nullptr) sizes = version->live()->overlay_sizes();
    Sizes& counted = instance->memory.overlays;
    const int64_t before = sum(counted);
    if (std::abs(sum(sizes) - before) <= before / kNoticedPart &&
        std::equal(sizes.begin(), sizes.end(), counted.begin(), counted.end(), same)) {
      continue;
    }
    counted = std::move(sizes);
    memory_changed_ = true;
  }
}

// Returns whether the versions that were loaded first have had time to receive requests.
bool HostControl::HasServed() const {
  return started_ && (actual_.has_endpoints() || NowNs() - started_ns_ >= kServesFirstNs);
}

void HostControl::UpdateActual(const Plan& plan) {
  ActualModels models = DescribeModels(plan, desired_.state(), instances_);
  std::vector<HostStats::Key> known;
  for (const auto& [name, versions] : models) {
    for (const auto& [number, entry] : versions) known.emplace_back(name, number);
  }
  stats_.Keep(known);
  actual_.SetModels(std::move(models), desired_.state(), instances_, desired_.memory_limit(), started_);
}

void HostControl::PlaceFrontEnd(int64_t now_ns) {
  const CpuSet before = front_end_.cpus();
  front_end_.Place(reserved_cpus_, now_ns);
  if (front_end_.cpus() != before) actual_.SetFrontEndCpus(front_end_.cpus());
}

void HostControl::StopLateRequests(int64_t now_ns) {
  for (const auto& [id, instance] : instances_.all()) {
    if (instance->view.state != VersionState::kDraining || instance->version == nullptr) continue;
    Model& model = instance->version->model();
    if (static_cast<double>(now_ns - instance->since_ns) < 1e9 * model.config().drain_seconds) continue;
    model.StopRequests(absl::CancelledError(absl::StrCat(instance->Name(),
                                                         ": undeployed, and the request ran on after drain_seconds (",
                                                         model.config().drain_seconds, ")")));
  }
}

void HostControl::WriteStats() {
  if (NowNs() < write_stats_at_ns_) return;
  write_stats_at_ns_ = NowNs() + kSecondNs;
  // actual.json, on the same disk, fails as well, and that is logged.
  directory_->WriteHostFile("stats.json", HostStatsJson(Actual(), *routes(), stats_) + "\n", /*durable=*/false)
      .IgnoreError();
  const ShadowLanes& shadows = publisher_.shadows();
  if (shadows.empty()) return;
  directory_->WriteHostFile("shadow.json", shadows.Text(host_id_) + "\n", /*durable=*/false).IgnoreError();
}

}  // namespace processor
