// SPDX-License-Identifier: Apache-2.0
#include "src/host/control/version_loader.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/log.h"
#include "src/host/desired/version_config.h"
#include "src/host/files/file.h"
#include "src/host/reports/actual_state.h"
#include "src/runtime/stats/stats.h"

namespace processor {
namespace {

constexpr int64_t kLongestRetryNs = 60 * kSecondNs;
constexpr char kRecords[] = "loads.json";
constexpr int64_t kMostRecordBytes = int64_t{16} << 20;

// How many loads run in parallel. A long one does not count any more, since it may never end.
constexpr int kLoadsAtOnce = 2;
constexpr int64_t kLongLoadNs = 30 * kSecondNs;
// A load ends by itself at its time limit, unless it is inside a call that cannot be interrupted.
constexpr int64_t kLateNs = kSecondNs;

// Returns whether the same load may succeed later.
bool IsWorthRetrying(const absl::Status& status, const std::string& path) {
  std::error_code error;
  return absl::IsResourceExhausted(status) || absl::IsUnavailable(status) || !std::filesystem::exists(path, error);
}

LoadRecords ReadRecords(const StateDirectory& directory) {
  std::string text;
  const absl::Status status =
      ReadSmallFile(absl::StrCat(directory.host_path(), "/", kRecords), kMostRecordBytes, &text);
  if (!status.ok() && !absl::IsNotFound(status)) Log(Severity::kWarning, status.message());
  // A supervisor that kills a host on purpose leaves this file.
  const bool on_purpose = unlink(absl::StrCat(directory.host_path(), "/killed").c_str()) == 0;
  LoadRecords records = LoadRecords::Read(text, BootId(), on_purpose, WallClockText());
  if (!records.found().empty()) Log(Severity::kWarning, records.found());
  return records;
}

}  // namespace

VersionLoader::VersionLoader(const StateDirectory* directory, const DesiredFile* desired, Instances* instances,
                             HostStats* stats, std::optional<std::string> maintenance_cpus, std::function<void()> wake)
    : directory_(*directory),
      desired_(*desired),
      instances_(*instances),
      stats_(*stats),
      maintenance_cpus_(std::move(maintenance_cpus)),
      delta_stores_(directory->host_path() + "/deltas"),
      records_(ReadRecords(*directory)),
      lanes_(directory->host_path() + "/verified_files.json", std::move(wake)) {
  WriteRecords();
}

void VersionLoader::KeepDesired() {
  std::vector<LoadKey> keys;
  for (const auto& [name, model] : desired_.state().models) {
    for (const auto& [number, version] : model.versions) keys.push_back({name, number, version.Identity()});
  }
  records_.Keep(keys);
}

void VersionLoader::WriteRecords() {
  records_pending_ |= records_.TakeChanged();
  if (!records_pending_) return;
  const absl::Status status = directory_.WriteHostFile(kRecords, records_.Json() + "\n", /*durable=*/true);
  records_pending_ = !status.ok();
  const std::string error = status.ok() ? "" : std::string(status.message());
  if (error != records_error_ && !error.empty()) Log(Severity::kError, absl::StrCat(error, "; tried again"));
  records_error_ = error;
}

const DesiredVersion& VersionLoader::Wanted(const VersionToLoad& load) const {
  return desired_.state().models.at(load.model).versions.at(load.number);
}

bool VersionLoader::IsBaseline(const VersionToLoad& load) const {
  return desired_.state().models.at(load.model).baseline == load.number;
}

LoadKey VersionLoader::KeyOf(const VersionToLoad& load) const {
  return {load.model, load.number, Wanted(load).Identity()};
}

LoadRecords::Standing VersionLoader::StandingOf(const VersionToLoad& load) const {
  return records_.StandingOf(KeyOf(load), IsBaseline(load));
}

bool VersionLoader::AnyKnownGoodIsReady() const {
  return std::any_of(instances_.all().begin(), instances_.all().end(), [this](const auto& item) {
    const Instance& instance = *item.second;
    return instance.view.state == VersionState::kReady && records_.WasGood(instance.Key());
  });
}

// If a version is known to be good, the host is ready with it alone: a suspect may end the process once more.
bool VersionLoader::IsSettled(const Plan& plan) const {
  bool suspects = false;
  for (const VersionToLoad& load : plan.load) {
    if (StandingOf(load) != Standing::kSuspect) return false;
    suspects = true;
  }
  for (const auto& [id, instance] : instances_.all()) {
    if (instance->view.state != VersionState::kLoading || instance->given_up) continue;
    if (instance->standing != Standing::kSuspect) return false;
    suspects = true;
  }
  return !suspects || AnyKnownGoodIsReady();
}

void VersionLoader::Fail(Instance& instance, const absl::Status& status) {
  instance.error = status;
  instance.retry_at_ns = 0;
  if (instance.settings.fault.ok() && IsWorthRetrying(status, instance.settings.path)) {
    instance.retry_delay_ns = std::clamp(2 * instance.retry_delay_ns, kSecondNs, kLongestRetryNs);
    instance.retry_at_ns = NowNs() + instance.retry_delay_ns;
  }
  instances_.SetState(instance, VersionState::kFailed);
  Log(Severity::kError, absl::StrCat(instance.Name(), ": ", status.ToString()));
}

void VersionLoader::GiveUp(Instance& instance) {
  instance.given_up = true;
  instance.progress->GiveUp(absl::CancelledError("load: given up, because the version is no longer desired"));
  records_.End(instance.Key(), /*ready=*/false);
  instances_.MarkChanged();
}

void VersionLoader::EndAll() {
  records_.Close();
  for (const auto& [id, instance] : instances_.all()) {
    if (instance->lane.has_value()) GiveUp(*instance);
  }
}

absl::Status VersionLoader::LateError(const Instance& instance) {
  return absl::DeadlineExceededError(absl::StrCat("load: not ready after ",
                                                  (instance.load_until_ns - instance.load_started_ns) / kSecondNs,
                                                  " s, expected within load_timeout_seconds"));
}

void VersionLoader::EndLateLoads(int64_t now_ns) {
  for (const auto& [id, instance] : instances_.all()) {
    if (!instance->IsLoading() || instance->load_until_ns == 0 || now_ns < instance->load_until_ns) continue;
    instance->progress->GiveUp(LateError(*instance));
    if (now_ns < instance->load_until_ns + kLateNs) continue;
    records_.End(instance->Key(), /*ready=*/false);
    Fail(*instance, LateError(*instance));
  }
}

void VersionLoader::MarkRetries(int64_t now_ns) {
  for (const auto& [id, instance] : instances_.all()) {
    instance->view.retry_due = instance->retry_at_ns != 0 && instance->retry_at_ns <= now_ns;
  }
}

void VersionLoader::Collect() {
  for (JobEnd& end : lanes_.TakeEnds()) {
    Instance* const instance = instances_.Find(end.instance);
    if (instance == nullptr) continue;
    instances_.MarkChanged();
    if (!end.load || (instance->given_up && !end.status.ok())) {
      instances_.Erase(end.instance);
    } else {
      CollectLoad(*instance, std::move(end));
    }
  }
}

void VersionLoader::CollectLoad(Instance& instance, JobEnd end) {
  const bool was_late = instance.view.state == VersionState::kFailed;
  instance.lane.reset();
  if (!was_late && !instance.given_up) records_.End(instance.Key(), end.status.ok());
  if (!end.status.ok()) {
    const bool late = instance.load_until_ns != 0 && NowNs() >= instance.load_until_ns && absl::IsCancelled(end.status);
    if (!was_late) Fail(instance, late ? LateError(instance) : end.status);
    return;
  }
  instances_.SetVersion(instance, std::move(end.version));
  instance.error = absl::OkStatus();
  instance.retry_delay_ns = 0;
  instance.load_ms = instance.version->model().version()->load_ms;
  instance.RefreshTexts();
  instance.stats = stats_.Of(instance.view.model, instance.view.number);
  // A version that was given up too late is unloaded like others.
  instances_.SetState(instance, instance.given_up ? VersionState::kDraining : VersionState::kReady);
}

void VersionLoader::StartUnload() {
  if (lanes_.busy(LoadLanes::kUnloadLane)) return;
  for (const auto& [id, instance] : instances_.all()) {
    if (instance->view.state != VersionState::kDraining || instance->version == nullptr) continue;
    const CpuSet cpus = MaintenanceCpus();
    std::shared_ptr<HostedVersion> version = instances_.TakeUnusedVersion(*instance);
    if (version == nullptr) continue;
    if (!lanes_.StartUnload(cpus, instance->view.id, &version).ok()) instance->version = std::move(version);
    return;
  }
}

absl::Status VersionLoader::FitsIntoMemory(const Instance& instance) const {
  std::vector<const MemoryEstimate*> others;
  for (const auto& [id, other] : instances_.all()) {
    const bool takes = other->version != nullptr || other->lane.has_value();
    if (takes && other.get() != &instance) others.push_back(&other->memory);
  }
  const int64_t used = MemoryInUse(others), more = MemoryToAdd(others, instance.memory);
  if (used + more <= desired_.memory_limit()) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("memory: ", more, " bytes to be loaded beside ", used,
                                                   ", expected at most ", desired_.memory_limit(), " in all"));
}

std::optional<int> VersionLoader::FreeLane() const {
  for (int lane = LoadLanes::kUnloadLane + 1; lane <= LoadLanes::kLastLane; ++lane) {
    if (!instances_.HoldsLane(lane) && !lanes_.busy(lane)) return lane;
  }
  return std::nullopt;
}

bool VersionLoader::MayStart(Standing standing, bool serves) const {
  const int64_t now_ns = NowNs();
  int recent = 0;
  bool others = false;
  for (const auto& [id, instance] : instances_.all()) {
    if (!instance->IsLoading()) continue;
    others = true;
    if (now_ns - instance->load_started_ns >= kLongLoadNs) continue;
    ++recent;
    // A suspect is loaded alone, so that it is known which version ended the host; and it does not delay versions known
    // to be good.
    if (instance->standing == Standing::kSuspect || instance->standing < standing) return false;
  }
  if (recent >= kLoadsAtOnce || !FreeLane().has_value()) return false;
  return standing != Standing::kSuspect || (!others && (serves || !AnyKnownGoodIsReady()));
}

void VersionLoader::StartLoads(const std::vector<VersionToLoad>& waiting, bool serves) {
  if (ended()) return;
  std::vector<std::pair<Standing, const VersionToLoad*>> ordered;
  for (const VersionToLoad& load : waiting) {
    // A load that cannot be interrupted is not started a second time.
    if (load.instead_of.has_value() && instances_.At(*load.instead_of).lane.has_value()) continue;
    absl::Status status = Wanted(load).fault;
    if (status.ok()) status = records_.MayLoad(KeyOf(load), IsBaseline(load));
    if (!status.ok()) {
      Fail(InstanceFor(load), status);
    } else {
      ordered.emplace_back(StandingOf(load), &load);
    }
  }
  std::stable_sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [standing, load] : ordered) {
    if (!MayStart(standing, serves) || !StartLoad(*load, standing)) return;
  }
}

Instance& VersionLoader::InstanceFor(const VersionToLoad& load) {
  if (load.instead_of.has_value()) return instances_.At(*load.instead_of);
  return instances_.Add(load.model, load.number, Wanted(load));
}

// Returns false if all further loads have to wait as well.
bool VersionLoader::StartLoad(const VersionToLoad& load, Standing standing) {
  const DesiredVersion& wanted = Wanted(load);
  Instance& instance = InstanceFor(load);
  instance.progress = std::make_shared<LoadProgress>();
  instance.standing = standing;
  absl::Status status = ResolvePath(wanted.path, &instance.path);
  ModelConfig config;
  if (status.ok()) status = CheckVersionConfig(wanted, load.number, &config);
  if (status.ok()) status = EstimateMemory(instance.path, CheckpointDirOf(wanted), config.tables, &instance.memory);
  if (status.ok()) status = FitsIntoMemory(instance);
  if (absl::IsResourceExhausted(status) && instances_.AnyDraining()) {
    // There may be room once the draining versions have ended.
    if (!load.instead_of.has_value()) instances_.Erase(instance.view.id);
    return false;
  }
  if (status.ok()) status = BeginLoad(instance, wanted);
  if (!status.ok()) Fail(instance, status);
  return true;
}

absl::Status VersionLoader::BeginLoad(Instance& instance, const DesiredVersion& wanted) {
  instances_.SetState(instance, VersionState::kLoading);
  instance.lane = FreeLane();
  instance.load_started_ns = NowNs();
  const double seconds = LoadTimeoutOf(wanted, desired_.state().load_timeout_s);
  instance.load_until_ns = seconds <= 0 ? 0 : instance.load_started_ns + static_cast<int64_t>(seconds * kSecondNs);
  records_.Begin(instance.Key());
  WriteRecords();
  const absl::Status status =
      lanes_.StartLoad(*instance.lane, MaintenanceCpus(), instance.view.id, wanted, instance.view.number,
                       {instance.Name(), delta_stores_.folder()}, instance.progress);
  if (!status.ok()) {
    instance.lane.reset();
    records_.End(instance.Key(), /*ready=*/false);
  }
  return status;
}

CpuSet VersionLoader::MaintenanceCpus() {
  const std::string text = maintenance_cpus_.value_or(desired_.state().maintenance_cpus);
  std::vector<CpuSet> groups(1);
  absl::Status status;
  if (!text.empty()) status = ParseCpusets(text, 1, AllowedCpus(), &groups);
  const std::string error = status.ok() ? "" : absl::StrCat("maintenance_cpus: ", status.message(), "; all are used");
  if (error != maintenance_error_ && !error.empty()) Log(Severity::kWarning, error);
  maintenance_error_ = error;
  return groups.front();
}

}  // namespace processor
