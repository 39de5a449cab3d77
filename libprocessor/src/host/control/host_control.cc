// SPDX-License-Identifier: Apache-2.0
#include "src/host/control/host_control.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/log.h"
#include "src/host/desired/accepted_state.h"
#include "src/runtime/requests/exception_status.h"
#include "src/runtime/stats/stats.h"
#include "src/runtime/threads/process_threads.h"

namespace processor {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(100);
// How often those that end are looked at: their memory is wanted back.
constexpr auto kPollDraining = std::chrono::milliseconds(10);

absl::Status Ending() { return StatusWithoutThrowing(absl::StatusCode::kCancelled, "request: the host is ending"); }

}  // namespace

HostControl::HostControl(const HostOptions& options, std::unique_ptr<StateDirectory> directory)
    : host_id_(options.host_id),
      maintenance_cpus_(options.maintenance_cpus),
      directory_(std::move(directory)),
      front_end_(options.owns_process),
      request_log_(directory_->host_path() + "/requests"),
      files_(directory_->host_path() + "/verified_files.json"),
      maintenance_(
          [this] {
            std::lock_guard<std::mutex> lock(wake_mutex_);
            woken_ = true;
            wake_.notify_all();
          },
          /*lanes=*/1 + kLoadLanes) {
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
  made->ReadRecords();
  made->ServeAccepted();
  // The first look comes before anybody can ask: a host without desired.json is ready at once, and one with it starting.
  made->Tick();
  made->thread_ = std::thread([raw = made.get()] { raw->Run(); });
  *control = std::move(made);
  return absl::OkStatus();
}

HostControl::~HostControl() {
  Stop();
  CloseVersions(/*stop_requests=*/false);
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
  EndLoads();
  WriteRecords();
  maintenance_.Wait();
}

void HostControl::CloseVersions(bool stop_requests) noexcept {
  job_ends_.clear();
  for (auto& [key, lane] : lanes_) lane.lane->Stop();
  // All of them first, so that the time of their requests passes together.
  for (auto& [id, instance] : instances_) {
    if (instance->version != nullptr) instance->version->model().Refuse();
  }
  const int64_t begin_ns = NowNs();
  for (auto& [id, instance] : instances_) {
    if (instance->version == nullptr) continue;
    Model& model = instance->version->model();
    const double seconds = stop_requests ? 0 : model.config().drain_seconds;
    while (instance->version->load().in_flight.load() > 0 && static_cast<double>(NowNs() - begin_ns) < 1e9 * seconds) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    model.StopRequests(Ending());
  }
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
    const bool ending = ending_;
    lock.unlock();
    if (ending && !records_.closed()) EndLoads();
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

void HostControl::StopLateRequests(int64_t now_ns) {
  for (auto& [id, instance] : instances_) {
    if (instance->view.state != VersionState::kDraining || instance->version == nullptr) continue;
    Model& model = instance->version->model();
    if (static_cast<double>(now_ns - instance->since_ns) < 1e9 * model.config().drain_seconds) continue;
    model.StopRequests(absl::CancelledError(
        absl::StrCat("model '", instance->view.model, "' version ", instance->view.number,
                     ": undeployed, and the request ran on after drain_seconds (", model.config().drain_seconds, ")")));
  }
}

void HostControl::Tick() {
  ReadDesired();
  CollectJobs();
  const int64_t now_ns = NowNs();
  EndLateLoads(now_ns);
  for (auto& [id, instance] : instances_) {
    instance->view.retry_due = instance->retry_at_ns != 0 && instance->retry_at_ns <= now_ns;
  }
  Apply();
  WriteRecords();
  StopLateRequests(now_ns);
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
      KeepRecords();
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
  instance.since_ns = NowNs();
  changed_ = true;
}

void HostControl::Apply() {
  std::vector<VersionInstance> views;
  for (const auto& [id, instance] : instances_) {
    if (!instance->given_up) views.push_back(instance->view);
  }
  const Plan plan = Reconcile(desired_, views, baselines_);
  for (const uint64_t id : plan.retire) SetState(At(id), VersionState::kDraining);
  for (const uint64_t id : plan.forget) {
    changed_ = true;
    // What was given up as late may run all the same.
    if (At(id).lane.has_value()) {
      GiveUp(At(id));
    } else {
      instances_.erase(id);
    }
  }
  for (const uint64_t id : plan.give_up) GiveUp(At(id));
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
  StartUnload();
  StartLoads(plan.load);
  // A host that was told what to serve and cannot follow it is not ready to be asked, unless it knows what it served.
  const bool knows = !accepted_.empty() || (refused_.empty() && !desired_missing_);
  if (!started_ && knows && IsSettled(plan)) {
    started_ = changed_ = true;
    started_ns_ = NowNs();
  }
  if (changed || changed_) UpdateActual(plan);
}

}  // namespace processor
