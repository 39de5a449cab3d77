// SPDX-License-Identifier: Apache-2.0
#include "src/host/host_control.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/host/accepted_state.h"
#include "src/runtime/exception_status.h"
#include "src/runtime/log.h"
#include "src/runtime/process_threads.h"
#include "src/runtime/stats.h"

namespace processor {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(100);
// How often those that end are looked at: their memory is wanted back.
constexpr auto kPollDraining = std::chrono::milliseconds(10);
constexpr int64_t kSecondNs = 1000000000;
constexpr int64_t kLongestRetryNs = 60 * kSecondNs;

// May the same attempt succeed later?
bool IsWorthRetrying(const absl::Status& status, const std::string& path) {
  std::error_code error;
  return absl::IsResourceExhausted(status) || absl::IsUnavailable(status) || !std::filesystem::exists(path, error);
}

}  // namespace

HostControl::HostControl(const HostOptions& options, std::unique_ptr<StateDirectory> directory)
    : host_id_(options.host_id),
      maintenance_cpus_(options.maintenance_cpus),
      directory_(std::move(directory)),
      front_end_(options.owns_process),
      request_log_(directory_->host_path() + "/requests"),
      files_(directory_->host_path() + "/verified_files.json"),
      maintenance_([this] {
        std::lock_guard<std::mutex> lock(wake_mutex_);
        woken_ = true;
        wake_.notify_all();
      }) {
  actual_.host = host_id_;
  actual_.started = WallClockText();
  actual_.cpus = actual_.front_end_cpus = FormatCpuset(AllowedCpus());
}

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
  made->ServeAccepted();
  // The first look comes before anybody can ask: a host without desired.json is ready at once, and one with it starting.
  made->Tick();
  made->thread_ = std::thread([raw = made.get()] { raw->Run(); });
  *control = std::move(made);
  return absl::OkStatus();
}

HostControl::~HostControl() {
  Stop();
  CloseVersions();
}

void HostControl::Stop() noexcept {
  {
    std::lock_guard<std::mutex> lock(wake_mutex_);
    if (stop_) return;
    stop_ = true;
    wake_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  // The control thread has ended: what was its own is ours.
  for (auto& [id, instance] : instances_) {
    if (instance->progress != nullptr) instance->progress->unwanted = true;
  }
  maintenance_.Wait();
}

void HostControl::CloseVersions() noexcept {
  job_end_.reset();
  for (auto& [key, lane] : lanes_) lane.lane->Stop();
  for (auto& [id, instance] : instances_) {
    if (instance->version != nullptr) instance->version->model().Close();
  }
  // Whose threads look into the table, and hold versions as long as they run.
  {
    std::lock_guard<std::mutex> lock(table_mutex_);
    old_tables_.push_back(std::exchange(table_, empty_table_));
  }
  old_tables_.clear();
  lanes_.clear();
  old_lanes_.clear();
}

std::shared_ptr<HostedVersion> HostControl::FindInstance(uint16_t instance) const {
  std::lock_guard<std::mutex> lock(versions_mutex_);
  const auto found = versions_.find(instance);
  return found == versions_.end() ? nullptr : found->second.lock();
}

void HostControl::Run() {
  pthread_setname_np(pthread_self(), "host-control");
  KeepThreadInPlace();
  std::unique_lock<std::mutex> lock(wake_mutex_);
  while (!stop_) {
    wake_.wait_for(lock, AnyDraining() ? kPollDraining : kPoll, [this] { return stop_ || woken_ || changed_; });
    if (stop_) return;
    woken_ = false;
    lock.unlock();
    const absl::Status status = Attempt([this] { return Tick(), absl::OkStatus(); });
    // Memory was short, most likely; what was not done is tried again at the next turn.
    if (!status.ok()) Log(Severity::kError, status.message());
    lock.lock();
  }
}

bool HostControl::AnyDraining() const {
  return std::any_of(instances_.begin(), instances_.end(),
                     [](const auto& item) { return item.second->view.state == VersionState::kDraining; });
}

void HostControl::Tick() {
  ReadDesired();
  CollectJob();
  const int64_t now_ns = NowNs();
  for (auto& [id, instance] : instances_) {
    instance->view.retry_due = instance->retry_at_ns != 0 && instance->retry_at_ns <= now_ns;
  }
  Apply();
  PlaceFrontEnd(NowNs());
  WriteAccepted();
  WriteActual();
  WriteStats();
}

void HostControl::PlaceFrontEnd(int64_t now_ns) {
  const CpuSet before = front_end_.cpus();
  front_end_.Place(reserved_cpus_, now_ns);
  if (front_end_.cpus() == before) return;
  std::lock_guard<std::mutex> lock(actual_mutex_);
  actual_.front_end_cpus = FormatCpuset(front_end_.cpus().empty() ? AllowedCpus() : front_end_.cpus());
  actual_dirty_ = true;
}

// Begins with what was accepted last: what is written in desired.json takes its place at once, if it can be followed.
void HostControl::ServeAccepted() {
  const std::string text = directory_->ReadHostFile(kAcceptedFile);
  AcceptedState accepted;
  if (text.empty() || !AcceptDesired(text, "", host_id_, &accepted).ok()) return;
  desired_ = std::move(accepted.state);
  accepted_ = std::move(accepted.text);
  memory_limit_ = desired_.memory_limit_bytes > 0 ? desired_.memory_limit_bytes : MemoryOfMachine();
  directory_->ExpectDesired();
}

void HostControl::ReadDesired() {
  std::string text;
  bool changed = false;
  absl::Status status = directory_->ReadDesired(&text, &changed);
  if (status.ok() && !changed) {
    // A file that came back as it was needs no reading, and one that was refused stays refused.
    if (desired_missing_) desired_missing_ = false, SetDesiredError(refused_);
    return;
  }
  if (changed) {
    AcceptedState accepted;
    status = AcceptDesired(text, accepted_, host_id_, &accepted);
    refused_ = status.ok() ? accepted.error : absl::StrCat(status.message(), "; what was desired before stays");
    if (status.ok()) {
      desired_ = std::move(accepted.state);
      accepted_ = std::move(accepted.text);
      accepted_dirty_ = true;
      memory_limit_ = desired_.memory_limit_bytes > 0 ? desired_.memory_limit_bytes : MemoryOfMachine();
      changed_ = true;
    }
    SetDesiredError(refused_);
  } else {
    SetDesiredError(absl::StrCat(status.message(), "; what was desired before stays"));
  }
  desired_missing_ = !changed;
}

void HostControl::SetDesiredError(const std::string& error) {
  std::lock_guard<std::mutex> lock(actual_mutex_);
  if (error == actual_.desired_error) return;
  actual_.desired_error = error;
  actual_dirty_ = true;
  if (!error.empty()) Log(Severity::kError, error);
}

void HostControl::SetState(Instance& instance, VersionState state) {
  instance.view.state = state;
  instance.since = WallClockText();
  changed_ = true;
}

void HostControl::Fail(Instance& instance, const absl::Status& status) {
  instance.error = status;
  instance.retry_at_ns = 0;
  if (instance.settings.fault.ok() && IsWorthRetrying(status, instance.settings.path)) {
    instance.retry_delay_ns = std::clamp(2 * instance.retry_delay_ns, kSecondNs, kLongestRetryNs);
    instance.retry_at_ns = NowNs() + instance.retry_delay_ns;
  }
  SetState(instance, VersionState::kFailed);
  Log(Severity::kError,
      absl::StrCat("model '", instance.view.model, "' version ", instance.view.number, ": ", status.ToString()));
}

void HostControl::CollectJob() {
  std::unique_ptr<JobEnd> end;
  {
    std::lock_guard<std::mutex> lock(wake_mutex_);
    end.swap(job_end_);
  }
  if (end == nullptr) return;
  const auto found = instances_.find(end->instance);
  if (found == instances_.end()) return;
  Instance& instance = *found->second;
  changed_ = true;
  if (!end->load || (instance.given_up && !end->status.ok())) {
    instances_.erase(found);
    return;
  }
  if (!end->status.ok()) return Fail(instance, end->status);
  instance.version = std::move(end->version);
  instance.error = absl::OkStatus();
  instance.retry_delay_ns = 0;
  instance.load_ms = instance.version->model().version()->load_ms;
  RefreshTexts(instance);
  instance.stats = stats_.Of(instance.view.model, instance.view.number);
  {
    std::lock_guard<std::mutex> lock(versions_mutex_);
    versions_[CancelNumber(instance.view.id)] = instance.version;
  }
  // One that was given up too late ends as others do.
  SetState(instance, instance.given_up ? VersionState::kDraining : VersionState::kReady);
}

void HostControl::Apply() {
  std::vector<VersionInstance> views;
  for (const auto& [id, instance] : instances_) {
    if (!instance->given_up) views.push_back(instance->view);
  }
  const Plan plan = Reconcile(desired_, views, baselines_);
  for (const uint64_t id : plan.retire) SetState(At(id), VersionState::kDraining);
  for (const uint64_t id : plan.forget) instances_.erase(id), changed_ = true;
  for (const uint64_t id : plan.give_up) {
    At(id).given_up = true;
    At(id).progress->unwanted = true;
    changed_ = true;
  }
  const bool changed = std::exchange(changed_, false);
  if (changed) {
    SettleServing(plan);
    Publish(plan);
  }
  // A table in which nobody looks any more holds versions that are to end.
  old_tables_.erase(
      std::remove_if(old_tables_.begin(), old_tables_.end(), [](const auto& table) { return table.use_count() == 1; }),
      old_tables_.end());
  old_lanes_.erase(std::remove_if(old_lanes_.begin(), old_lanes_.end(),
                                  [](const auto& lane) { return lane->ended() && lane.use_count() == 1; }),
                   old_lanes_.end());
  // What begins here changes the state of its version, which the next turn publishes.
  if (MayStartJob()) StartUnload();
  if (MayStartJob()) StartLoad(plan.load);
  // A host that was told what to serve and cannot follow it is not ready to be asked, unless it knows what it served.
  const bool knows = !accepted_.empty() || (refused_.empty() && !desired_missing_);
  if (plan.load.empty() && !started_ && knows) {
    const bool loading = std::any_of(instances_.begin(), instances_.end(), [](const auto& item) {
      return item.second->view.state == VersionState::kLoading;
    });
    if (!loading) started_ = changed_ = true;
  }
  if (changed || changed_) UpdateActual(plan);
}

// A job that has ended since CollectJob() must be collected before another one ends.
bool HostControl::MayStartJob() {
  if (maintenance_.busy()) return false;
  std::lock_guard<std::mutex> lock(wake_mutex_);
  return job_end_ == nullptr;
}

void HostControl::StartUnload() {
  for (auto& [id, instance] : instances_) {
    if (instance->view.state != VersionState::kDraining) continue;
    {
      // Ours is the last reference, and from here on nobody can take another.
      std::lock_guard<std::mutex> lock(versions_mutex_);
      if (instance->version.use_count() != 1) continue;
      versions_.erase(CancelNumber(id));
    }
    auto* const version = new std::shared_ptr<HostedVersion>(std::move(instance->version));
    const absl::Status status = maintenance_.Start(MaintenanceCpus(), [this, id = id, version] {
      delete version;
      Finish(id, /*load=*/false, absl::OkStatus(), nullptr);
    });
    if (!status.ok()) {
      instance->version = std::move(*version);
      delete version;
    }
    return;
  }
}

void HostControl::Finish(uint64_t id, bool load, const absl::Status& status, std::unique_ptr<HostedVersion> version) {
  auto end = std::make_unique<JobEnd>();
  end->instance = id;
  end->load = load;
  end->status = status;
  end->version = std::move(version);
  std::lock_guard<std::mutex> lock(wake_mutex_);
  job_end_ = std::move(end);
}

absl::Status HostControl::FitsIntoMemory(const Instance& instance) const {
  std::vector<const MemoryEstimate*> others;
  for (const auto& [id, other] : instances_) {
    if (other->version != nullptr && other.get() != &instance) others.push_back(&other->memory);
  }
  const int64_t used = MemoryInUse(others), more = MemoryToAdd(others, instance.memory);
  if (used + more <= memory_limit_) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("memory: ", more, " bytes to be loaded beside ", used,
                                                   ", expected at most ", memory_limit_, " in all"));
}

void HostControl::StartLoad(const std::vector<VersionToLoad>& waiting) {
  for (const VersionToLoad& next : waiting) {
    const DesiredVersion& wanted = desired_.models.at(next.model).versions.at(next.number);
    if (!next.instead_of.has_value()) {
      auto made = std::make_unique<Instance>();
      made->view = {next_instance_++, next.model, next.number, wanted.Identity(), VersionState::kLoading, false};
      made->settings = wanted;
      made->cpuset = wanted.cpuset;
      const uint64_t id = made->view.id;
      instances_[id] = std::move(made);
    }
    const uint64_t id = next.instead_of.value_or(next_instance_ - 1);
    Instance& instance = At(id);
    instance.progress = std::make_shared<LoadProgress>();
    absl::Status status = wanted.fault;
    if (status.ok()) status = ResolvePath(wanted.path, &instance.path);
    if (status.ok()) status = EstimateMemory(instance.path, CheckpointDirOf(wanted), &instance.memory);
    if (status.ok()) status = FitsIntoMemory(instance);
    if (absl::IsResourceExhausted(status) && AnyDraining()) {
      // There may be room once those have ended.
      if (!next.instead_of.has_value()) instances_.erase(id);
      return;
    }
    if (status.ok()) {
      SetState(instance, VersionState::kLoading);
      const int64_t number = next.number;
      status = maintenance_.Start(MaintenanceCpus(), [this, id, number, wanted, progress = instance.progress] {
        std::unique_ptr<HostedVersion> version;
        const absl::Status loaded = Attempt([&] { return LoadVersion(wanted, number, progress, &version); });
        Finish(id, /*load=*/true, loaded, std::move(version));
      });
    }
    if (status.ok()) return;
    Fail(instance, status);
  }
}

absl::Status HostControl::LoadVersion(const DesiredVersion& wanted, int64_t number,
                                      const std::shared_ptr<LoadProgress>& progress,
                                      std::unique_ptr<HostedVersion>* version) {
  std::string folder, seal;
  if (absl::Status s = ResolvePath(wanted.path, &folder); !s.ok()) return s;
  const auto give_up = [&progress] { return progress->unwanted.load(); };
  if (absl::Status s = files_.Check(folder, wanted.files, give_up, &seal); !s.ok()) return s;
  if (absl::Status s = HostedVersion::Load(wanted, number, progress, version); !s.ok()) return s;
  absl::Status status = FileChecker::Unchanged(folder, seal);
  if (!status.ok()) version->reset();
  return status;
}

CpuSet HostControl::MaintenanceCpus() {
  const std::string text = maintenance_cpus_.value_or(desired_.maintenance_cpus);
  std::vector<CpuSet> groups(1);
  absl::Status status;
  if (!text.empty()) status = ParseCpusets(text, 1, AllowedCpus(), &groups);
  const std::string error = status.ok() ? "" : absl::StrCat("maintenance_cpus: ", status.message(), "; all are used");
  if (error != maintenance_error_ && !error.empty()) Log(Severity::kWarning, error);
  maintenance_error_ = error;
  return groups.front();
}

}  // namespace processor
