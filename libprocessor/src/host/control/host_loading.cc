// SPDX-License-Identifier: Apache-2.0
// How the control thread of a host loads and unloads versions: which come first, how many at a time, for how long, and
// what is remembered of them for the process that follows if this one dies.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/log.h"
#include "src/host/control/host_control.h"
#include "src/host/files/file.h"
#include "src/runtime/requests/exception_status.h"
#include "src/runtime/stats/stats.h"

namespace processor {
namespace {

using Standing = LoadRecords::Standing;

constexpr int64_t kLongestRetryNs = 60 * kSecondNs;
constexpr char kRecords[] = "loads.json";
constexpr int64_t kMostRecordBytes = int64_t{16} << 20;

// Loads that begin beside each other. One that takes long keeps no other waiting: it may never end.
constexpr int kLoadsAtOnce = 2;
constexpr int64_t kLongLoadNs = 30 * kSecondNs;
// A load ends by itself at its time limit, unless it is inside something that nobody can interrupt.
constexpr int64_t kLateNs = kSecondNs;
// What is known to be good serves for so long, where nobody says when it does, before a suspect is tried.
constexpr int64_t kServesFirstNs = 2 * kSecondNs;

// May the same attempt succeed later?
bool IsWorthRetrying(const absl::Status& status, const std::string& path) {
  std::error_code error;
  return absl::IsResourceExhausted(status) || absl::IsUnavailable(status) || !std::filesystem::exists(path, error);
}

}  // namespace

void HostControl::ReadRecords() {
  std::string text;
  const absl::Status status =
      ReadSmallFile(absl::StrCat(directory_->host_path(), "/", kRecords), kMostRecordBytes, &text);
  if (!status.ok() && !absl::IsNotFound(status)) Log(Severity::kWarning, status.message());
  // Whoever kills a host for reasons of its own leaves this file.
  const bool on_purpose = unlink(absl::StrCat(directory_->host_path(), "/killed").c_str()) == 0;
  records_ = LoadRecords::Read(text, BootId(), on_purpose, WallClockText());
  if (!records_.found().empty()) Log(Severity::kWarning, records_.found());
  WriteRecords();
}

void HostControl::KeepRecords() {
  std::vector<LoadKey> keys;
  for (const auto& [name, model] : desired_.models) {
    for (const auto& [number, version] : model.versions) keys.push_back({name, number, version.Identity()});
  }
  records_.Keep(keys);
}

void HostControl::WriteRecords() {
  records_pending_ |= records_.TakeChanged();
  if (!records_pending_) return;
  const absl::Status status = directory_->WriteHostFile(kRecords, records_.Json() + "\n", /*durable=*/true);
  records_pending_ = !status.ok();
  const std::string error = status.ok() ? "" : std::string(status.message());
  if (error != records_error_ && !error.empty()) Log(Severity::kError, absl::StrCat(error, "; tried again"));
  records_error_ = error;
}

void HostControl::PrepareEnd() {
  std::lock_guard<std::mutex> lock(wake_mutex_);
  ending_ = true;
  woken_ = true;
  wake_.notify_all();
}

void HostControl::EndLoads() {
  records_.Close();
  for (auto& [id, instance] : instances_) {
    if (instance->lane.has_value()) GiveUp(*instance);
  }
}

bool HostControl::IsBaseline(const VersionToLoad& load) const {
  return desired_.models.at(load.model).baseline == load.number;
}

LoadKey HostControl::KeyOf(const VersionToLoad& load) const {
  return {load.model, load.number, desired_.models.at(load.model).versions.at(load.number).Identity()};
}

LoadKey HostControl::KeyOf(const Instance& instance) {
  return {instance.view.model, instance.view.number, instance.view.identity};
}

Standing HostControl::StandingOf(const VersionToLoad& load) const {
  return records_.StandingOf(KeyOf(load), IsBaseline(load));
}

// Where something is known to be good, that is what a host is ready with: a suspect may end it once more.
bool HostControl::IsSettled(const Plan& plan) const {
  bool suspects = false, good = false;
  for (const VersionToLoad& load : plan.load) {
    if (StandingOf(load) != Standing::kSuspect) return false;
    suspects = true;
  }
  for (const auto& [id, instance] : instances_) {
    good |= instance->view.state == VersionState::kReady && records_.WasGood(KeyOf(*instance));
    if (instance->view.state != VersionState::kLoading || instance->given_up) continue;
    if (instance->standing != Standing::kSuspect) return false;
    suspects = true;
  }
  return !suspects || good;
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

void HostControl::GiveUp(Instance& instance) {
  instance.given_up = true;
  instance.progress->GiveUp(absl::CancelledError("load: given up, since nobody wants the version any more"));
  records_.End(KeyOf(instance), /*ready=*/false);
  changed_ = true;
}

absl::Status HostControl::LateError(const Instance& instance) {
  return absl::DeadlineExceededError(absl::StrCat("load: not ready after ",
                                                  (instance.load_until_ns - instance.load_started_ns) / kSecondNs,
                                                  " s, expected within load_timeout_seconds"));
}

void HostControl::EndLateLoads(int64_t now_ns) {
  for (auto& [id, instance] : instances_) {
    if (!IsLoading(*instance) || instance->load_until_ns == 0 || now_ns < instance->load_until_ns) continue;
    instance->progress->GiveUp(LateError(*instance));
    if (now_ns < instance->load_until_ns + kLateNs) continue;
    records_.End(KeyOf(*instance), /*ready=*/false);
    Fail(*instance, LateError(*instance));
  }
}

void HostControl::CollectJobs() {
  std::vector<JobEnd> ends;
  {
    std::lock_guard<std::mutex> lock(wake_mutex_);
    ends.swap(job_ends_);
  }
  for (JobEnd& end : ends) CollectJob(std::move(end));
}

void HostControl::CollectJob(JobEnd end) {
  const auto found = instances_.find(end.instance);
  if (found == instances_.end()) return;
  Instance& instance = *found->second;
  changed_ = true;
  if (!end.load || (instance.given_up && !end.status.ok())) {
    instances_.erase(found);
    return;
  }
  const bool was_late = instance.view.state == VersionState::kFailed;
  instance.lane.reset();
  if (!was_late && !instance.given_up) records_.End(KeyOf(instance), end.status.ok());
  if (!end.status.ok()) {
    const bool late = instance.load_until_ns != 0 && NowNs() >= instance.load_until_ns && absl::IsCancelled(end.status);
    if (!was_late) Fail(instance, late ? LateError(instance) : end.status);
    return;
  }
  instance.version = std::move(end.version);
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

void HostControl::StartUnload() {
  if (maintenance_.busy(kUnloadLane)) return;
  for (auto& [id, instance] : instances_) {
    if (instance->view.state != VersionState::kDraining || instance->version == nullptr) continue;
    {
      // Ours is the last reference, and from here on nobody can take another.
      std::lock_guard<std::mutex> lock(versions_mutex_);
      if (instance->version.use_count() != 1) continue;
      versions_.erase(CancelNumber(id));
    }
    auto* const version = new std::shared_ptr<HostedVersion>(std::move(instance->version));
    const absl::Status status = maintenance_.Start(
        MaintenanceCpus(),
        [this, id = id, version] {
          delete version;
          Finish(id, /*load=*/false, absl::OkStatus(), nullptr);
        },
        kUnloadLane);
    if (!status.ok()) {
      instance->version = std::move(*version);
      delete version;
    }
    return;
  }
}

void HostControl::Finish(uint64_t id, bool load, const absl::Status& status, std::unique_ptr<HostedVersion> version) {
  JobEnd end;
  end.instance = id;
  end.load = load;
  end.status = status;
  end.version = std::move(version);
  std::lock_guard<std::mutex> lock(wake_mutex_);
  job_ends_.push_back(std::move(end));
}

absl::Status HostControl::FitsIntoMemory(const Instance& instance) const {
  std::vector<const MemoryEstimate*> others;
  for (const auto& [id, other] : instances_) {
    const bool takes = other->version != nullptr || other->lane.has_value();
    if (takes && other.get() != &instance) others.push_back(&other->memory);
  }
  const int64_t used = MemoryInUse(others), more = MemoryToAdd(others, instance.memory);
  if (used + more <= memory_limit_) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("memory: ", more, " bytes to be loaded beside ", used,
                                                   ", expected at most ", memory_limit_, " in all"));
}

std::optional<int> HostControl::FreeLane() const {
  for (int lane = kUnloadLane + 1; lane < maintenance_.lanes(); ++lane) {
    const bool held =
        std::any_of(instances_.begin(), instances_.end(), [&](const auto& item) { return item.second->lane == lane; });
    if (!held && !maintenance_.busy(lane)) return lane;
  }
  return std::nullopt;
}

bool HostControl::MayStartLoad(Standing standing) const {
  const int64_t now_ns = NowNs();
  int recent = 0;
  bool others = false;
  for (const auto& [id, instance] : instances_) {
    if (!IsLoading(*instance)) continue;
    others = true;
    if (now_ns - instance->load_started_ns >= kLongLoadNs) continue;
    ++recent;
    // A suspect is alone, so that it is known who ended the host; and what is known to be good is not held up.
    if (instance->standing == Standing::kSuspect || instance->standing < standing) return false;
  }
  if (recent >= kLoadsAtOnce || !FreeLane().has_value()) return false;
  return standing != Standing::kSuspect || (!others && MayTrySuspect(now_ns));
}

bool HostControl::MayTrySuspect(int64_t now_ns) const {
  const bool good = std::any_of(instances_.begin(), instances_.end(), [this](const auto& item) {
    return item.second->view.state == VersionState::kReady && records_.WasGood(KeyOf(*item.second));
  });
  if (!good) return true;
  if (!started_) return false;
  std::lock_guard<std::mutex> lock(actual_mutex_);
  return !actual_.endpoints.empty() || now_ns - started_ns_ >= kServesFirstNs;
}

void HostControl::StartLoads(const std::vector<VersionToLoad>& waiting) {
  if (records_.closed()) return;
  std::vector<std::pair<Standing, const VersionToLoad*>> ordered;
  for (const VersionToLoad& load : waiting) {
    // What cannot be interrupted is not begun a second time.
    if (load.instead_of.has_value() && At(*load.instead_of).lane.has_value()) continue;
    absl::Status status = desired_.models.at(load.model).versions.at(load.number).fault;
    if (status.ok()) status = records_.MayLoad(KeyOf(load), IsBaseline(load));
    if (!status.ok()) {
      Fail(InstanceFor(load), status);
    } else {
      ordered.emplace_back(StandingOf(load), &load);
    }
  }
  std::stable_sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [standing, load] : ordered) {
    if (!MayStartLoad(standing) || !StartLoad(*load, standing)) return;
  }
}

HostControl::Instance& HostControl::InstanceFor(const VersionToLoad& load) {
  if (load.instead_of.has_value()) return At(*load.instead_of);
  const DesiredVersion& wanted = desired_.models.at(load.model).versions.at(load.number);
  auto made = std::make_unique<Instance>();
  made->view = {next_instance_++, load.model, load.number, wanted.Identity(), VersionState::kLoading, false};
  made->settings = wanted;
  made->cpuset = wanted.cpuset;
  return *(instances_[made->view.id] = std::move(made));
}

// False if all others have to wait as well.
bool HostControl::StartLoad(const VersionToLoad& load, Standing standing) {
  const DesiredVersion& wanted = desired_.models.at(load.model).versions.at(load.number);
  Instance& instance = InstanceFor(load);
  const uint64_t id = instance.view.id;
  instance.progress = std::make_shared<LoadProgress>();
  instance.standing = standing;
  absl::Status status = ResolvePath(wanted.path, &instance.path);
  if (status.ok()) status = EstimateMemory(instance.path, CheckpointDirOf(wanted), &instance.memory);
  if (status.ok()) status = FitsIntoMemory(instance);
  if (absl::IsResourceExhausted(status) && AnyDraining()) {
    // There may be room once those have ended.
    if (!load.instead_of.has_value()) instances_.erase(id);
    return false;
  }
  if (status.ok()) {
    SetState(instance, VersionState::kLoading);
    instance.lane = FreeLane();
    instance.load_started_ns = NowNs();
    const double seconds = LoadTimeoutOf(wanted, desired_.load_timeout_s);
    instance.load_until_ns = seconds <= 0 ? 0 : instance.load_started_ns + static_cast<int64_t>(seconds * kSecondNs);
    records_.Begin(KeyOf(instance));
    WriteRecords();
    const int64_t number = load.number;
    status = maintenance_.Start(
        MaintenanceCpus(),
        [this, id, number, wanted, progress = instance.progress] {
          std::unique_ptr<HostedVersion> version;
          const absl::Status loaded = Attempt([&] { return LoadVersion(wanted, number, progress, &version); });
          Finish(id, /*load=*/true, loaded, std::move(version));
        },
        *instance.lane);
    if (status.ok()) return true;
    instance.lane.reset();
    records_.End(KeyOf(instance), /*ready=*/false);
  }
  Fail(instance, status);
  return true;
}

absl::Status HostControl::LoadVersion(const DesiredVersion& wanted, int64_t number,
                                      const std::shared_ptr<LoadProgress>& progress,
                                      std::unique_ptr<HostedVersion>* version) {
  std::string folder, seal;
  if (absl::Status s = ResolvePath(wanted.path, &folder); !s.ok()) return s;
  const auto give_up = [&progress] { return progress->cancellation.requested(); };
  if (absl::Status s = files_.Check(folder, wanted.files, give_up, &seal); !s.ok()) return s;
  if (absl::Status s = HostedVersion::Load(wanted, number, progress, version); !s.ok()) return s;
  absl::Status status = FileChecker::Unchanged(folder, seal);
  if (!status.ok()) version->reset();
  return status;
}

int HostControl::StuckLoads() const {
  return static_cast<int>(std::count_if(instances_.begin(), instances_.end(), [](const auto& item) {
    return item.second->lane.has_value() && !IsLoading(*item.second);
  }));
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
