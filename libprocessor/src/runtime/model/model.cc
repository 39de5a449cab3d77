// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/model/model.h"

#include <chrono>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/runtime/model/model_admission.h"
#include "src/runtime/requests/deadline.h"
#include "src/runtime/requests/exception_status.h"

namespace processor {

Model::Model(ModelConfig config, std::string base_dir, std::shared_ptr<LoadProgress> progress)
    : config_(std::move(config)),
      base_dir_(std::move(base_dir)),
      progress_(std::move(progress)),
      execution_(config_.execution),
      timeline_(config_.timeline),
      batcher_(BatcherSetup()) {
  const auto share = std::make_shared<RequestThreads::Share>();
  for (int i = 0; i < config_.session_num; ++i) {
    SessionSlot::Options options;
    options.shared = &RequestThreads::OfProcess();
    options.share = share;
    options.name = absl::StrCat("session-", i);
    options.index = i;
    options.intra_op_threads = config_.intra_op_parallelism_threads;
    options.inter_op_threads = config_.inter_op_parallelism_threads;
    options.worker_threads = config_.worker_threads;
    options.max_queue_size = config_.max_queue_size;
    // Threads that wait for company, as those of a batcher may, leave their CPU to others.
    options.one_task_per_cpu = config_.batching.mode == BatchMode::kOff;
    if (!config_.cpusets.empty()) options.cpus = config_.cpusets[i];
    slots_.push_back(std::make_unique<SessionSlot>(std::move(options)));
    serve_tasks_.push_back(MakeServeTask(i));
  }
  batcher_.SetOptions(config_.batching);
}

Model::~Model() { Close(); }

absl::Status Model::Load(ModelConfig config, const std::string& base_dir, std::shared_ptr<Model>* model,
                         std::shared_ptr<LoadProgress> progress) {
  if (progress == nullptr) progress = std::make_shared<LoadProgress>();
  std::shared_ptr<Model> result(new Model(std::move(config), base_dir, std::move(progress)));
  if (absl::Status s = result->LoadFirst(); !s.ok()) {
    result->Close();
    return s;
  }
  if (!result->config_.checkpoint_dir.empty()) {
    result->updater_ = std::thread([raw = result.get()] { raw->FollowCheckpoints(); });
  }
  *model = std::move(result);
  return absl::OkStatus();
}

std::shared_ptr<ModelVersion> Model::version() const {
  std::lock_guard<std::mutex> lock(version_mutex_);
  return version_;
}

absl::Status Model::Admit() {
  in_flight_.fetch_add(1);
  const State state = state_.load();
  if (state == State::kServing) return absl::OkStatus();
  Leave();
  if (state == State::kDraining) return absl::UnavailableError("model: draining, expected one that serves");
  return absl::FailedPreconditionError("model: freed, expected one that is loaded");
}

void Model::Leave() noexcept {
  if (in_flight_.fetch_sub(1) == 1 && state_.load() != State::kServing) {
    std::lock_guard<std::mutex> lock(idle_mutex_);
    idle_.notify_all();
  }
}

int Model::PickSession() {
  const int n = static_cast<int>(slots_.size());
  if (n == 1) return 0;
  switch (config_.select_session_policy) {
    case SelectPolicy::kMod: {
      static std::atomic<unsigned> threads{0};
      thread_local const unsigned number = threads.fetch_add(1, std::memory_order_relaxed);
      return static_cast<int>(number % n);
    }
    case SelectPolicy::kRoundRobin: {
      // In turn, but past those that are busy as long as one is idle.
      const int first = static_cast<int>(next_session_.fetch_add(1, std::memory_order_relaxed) % n);
      for (int i = 0; i < n; ++i) {
        const int candidate = (first + i) % n;
        if (slots_[candidate]->load().load(std::memory_order_relaxed) > 0) continue;
        if (i > 0) next_session_.fetch_add(static_cast<uint64_t>(i), std::memory_order_relaxed);
        return candidate;
      }
      return first;
    }
    case SelectPolicy::kLeastLoaded: {
      // The search begins somewhere else each time, so that equals share.
      const int first = static_cast<int>(next_session_.fetch_add(1, std::memory_order_relaxed) % n);
      int best = first;
      for (int i = 1; i < n; ++i) {
        const int candidate = (first + i) % n;
        if (slots_[candidate]->load().load(std::memory_order_relaxed) <
            slots_[best]->load().load(std::memory_order_relaxed)) {
          best = candidate;
        }
      }
      return best;
    }
  }
  return 0;
}

void Model::RecordRefusal(const absl::Status& status, int64_t start_ns) noexcept {
  RequestTiming timing;
  timing.queue_ns = timing.total_ns = NowNs() - start_ns;
  refused_.Record(status.code(), timing);
}

absl::Status Model::CheckModelSpec(const ModelVersion& version, const DecodedRequest& request) const {
  if (!request.model_name.empty() && config_.model_name.has_value() && request.model_name != *config_.model_name) {
    return absl::NotFoundError(
        absl::StrCat("model '", request.model_name, "': not loaded, expected '", *config_.model_name, "'"));
  }
  if (!request.version_label.empty()) {
    return absl::NotFoundError(
        absl::StrCat("version label '", request.version_label, "': a single model has no labels"));
  }
  if (request.model_version.has_value() && request.model_version != version.source().number) {
    const auto& number = version.source().number;
    return absl::NotFoundError(absl::StrCat("model version ", *request.model_version, ": not loaded, expected ",
                                            number.has_value() ? absl::StrCat(*number) : "a request without version"));
  }
  return absl::OkStatus();
}

absl::Status Model::RunOnVersion(ModelVersion& version, int session, const DecodedRequest& request,
                                 std::vector<tensorflow::Tensor>* outputs) {
  const int64_t trace = timeline_.Next();
  if (trace < 0) return version.Run(session, request, outputs);
  tensorflow::StepStats stats;
  const absl::Status status = version.RunTraced(session, request, outputs, &stats);
  if (status.ok()) timeline_.Write(trace, stats);
  return status;
}

absl::Status Model::SetCpuset(std::string_view cpuset) {
  if (absl::Status s = Admit(); !s.ok()) return s;
  const Admission admission(this);
  const CpuSet allowed = AllowedCpus();
  std::vector<CpuSet> groups(slots_.size(), allowed);
  absl::Status status;
  if (!cpuset.empty()) status = ParseCpusets(cpuset, static_cast<int>(slots_.size()), allowed, &groups);
  if (status.ok()) {
    for (size_t i = 0; i < slots_.size(); ++i) slots_[i]->SetCpus(groups[i]);
  }
  return status;
}

CpuSet Model::Cpus() const {
  std::set<int> all;
  for (const auto& slot : slots_) {
    const CpuSet cpus = slot->cpus();
    if (cpus.empty()) return {};
    all.insert(cpus.begin(), cpus.end());
  }
  return CpuSet(all.begin(), all.end());
}

int Model::RequestsAtOnce() const {
  if (config_.worker_threads > 0) return config_.session_num * config_.worker_threads;
  return static_cast<int>(RequestThreads::OfProcess().at_once());
}

std::vector<std::string> Model::Cpusets() const {
  std::vector<std::string> cpusets;
  for (const auto& slot : slots_) cpusets.push_back(FormatCpuset(slot->cpus()));
  return cpusets;
}

absl::Status Model::Drain(int64_t deadline_us) {
  State serving = State::kServing;
  if (!state_.compare_exchange_strong(serving, State::kDraining) && serving == State::kClosed) {
    return absl::FailedPreconditionError("model: freed, expected one that is loaded");
  }
  drained_ = true;
  std::unique_lock<std::mutex> lock(idle_mutex_);
  const auto idle = [this] { return in_flight_.load() == 0; };
  if (deadline_us == 0) {
    idle_.wait(lock, idle);
    return absl::OkStatus();
  }
  if (idle_.wait_until(lock, DeadlinePoint(deadline_us), idle)) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat("model: ", in_flight_.load(), " requests left at the deadline"));
}

void Model::Refuse() noexcept {
  state_ = State::kClosed;
  const absl::Status freed =
      StatusWithoutThrowing(absl::StatusCode::kCancelled, "request: the model was freed while it waited");
  batcher_.Stop(freed);
  for (auto& slot : slots_) slot->Refuse(freed);
}

void Model::StopRequests(const absl::Status& status) noexcept {
  drained_ = true;
  watch_.StopAll(status);
}

void Model::Close() noexcept {
  if (closed_.exchange(true)) return;
  Refuse();
  progress_->GiveUp(
      StatusWithoutThrowing(absl::StatusCode::kCancelled, "load: given up, since the model is being freed"));
  {
    std::lock_guard<std::mutex> lock(update_mutex_);
    stop_updates_ = true;
  }
  update_wake_.notify_all();
  if (updater_.joinable()) updater_.join();
  const auto idle = [this] { return in_flight_.load() == 0; };
  const auto grace = std::chrono::duration<double>(drained_.load() ? 0 : config_.drain_seconds);
  {
    std::unique_lock<std::mutex> lock(idle_mutex_);
    idle_.wait_for(lock, grace, idle);
  }
  StopRequests(StatusWithoutThrowing(absl::StatusCode::kCancelled, "request: the model was freed while it ran"));
  for (auto& slot : slots_) slot->Stop();
  {
    std::unique_lock<std::mutex> lock(idle_mutex_);
    idle_.wait(lock, idle);
  }
  watch_.End();
  std::vector<std::shared_ptr<ModelVersion>> retired;
  std::shared_ptr<ModelVersion> current;
  {
    std::lock_guard<std::mutex> lock(version_mutex_);
    retired.swap(retired_);
    current.swap(version_);
  }
}

}  // namespace processor
