// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/model.h"

#include <chrono>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/runtime/deadline.h"
#include "src/runtime/deadline_watch.h"
#include "src/runtime/exception_status.h"
#include "src/runtime/model_admission.h"

namespace processor {
namespace {

// Waits for one event, once.
class Latch {
 public:
  void Set() {
    std::lock_guard<std::mutex> lock(mutex_);
    set_ = true;
    wake_.notify_all();
  }
  void Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    wake_.wait(lock, [this] { return set_; });
  }
  /// False if `deadline_us` came first.
  bool WaitUntil(int64_t deadline_us) {
    std::unique_lock<std::mutex> lock(mutex_);
    return wake_.wait_until(lock, DeadlinePoint(deadline_us), [this] { return set_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool set_ = false;
};

// A request of a caller who waits.
class WaitedWork : public AsyncWork {
 public:
  explicit WaitedWork(Work& work) : work_(work) {
    priority = work.priority;
    deadline_us = work.deadline_us;
    caller_keeps_deadline = true;
  }
  absl::Status Decode(const ModelVersion& version, DecodedRequest* request) override {
    return work_.Decode(version, request);
  }
  absl::Status Encode(const ModelVersion& version, const DecodedRequest& request,
                      std::vector<tensorflow::Tensor>& outputs) override {
    return work_.Encode(version, request, outputs);
  }
  void Done(const absl::Status& status) noexcept override {
    status_ = status;
    work_.timing = timing;
    latch_.Set();
  }

  Latch& latch() { return latch_; }
  const absl::Status& status() const { return status_; }

 private:
  Work& work_;
  Latch latch_;
  absl::Status status_;
};

}  // namespace

// A request in the queue of a slot. It is admitted while it exists: whichever of Run() and Fail() ends it leaves.
class Model::SlotTask : public Task {
 public:
  SlotTask(Model* model, std::shared_ptr<AsyncWork> work, SessionSlot* slot)
      : model_(model), work_(std::move(work)), slot_(slot), start_ns_(NowNs()), watch_(&model->reaper_) {}

  void Run(int session) noexcept override {
    work_->timing.queue_ns = NowNs() - start_ns_;
    End(model_->Execute(session, *work_));
  }

  void WatchDeadline() noexcept { watch_.Begin(deadline_us, id); }

  void Fail(const absl::Status& status) noexcept override {
    work_->timing.queue_ns = NowNs() - start_ns_;
    model_->RecordRefusal(status, start_ns_);
    End(status);
  }

 private:
  void End(const absl::Status& status) noexcept {
    slot_->load().fetch_sub(1, std::memory_order_relaxed);
    watch_.End(deadline_us, id);
    // The caller may free the model as soon as it has heard, which waits for Leave().
    work_->Done(status);
    work_.reset();
    model_->Leave();
  }

  Model* const model_;
  std::shared_ptr<AsyncWork> work_;
  SessionSlot* const slot_;
  const int64_t start_ns_;
  DeadlineWatch watch_;
};

Model::Model(ModelConfig config, std::string base_dir, std::shared_ptr<LoadProgress> progress)
    : config_(std::move(config)),
      base_dir_(std::move(base_dir)),
      progress_(std::move(progress)),
      execution_(config_.execution),
      timeline_(config_.timeline),
      reaper_([this](uint64_t id) { Cancel(id, DeadlinePassed()).IgnoreError(); }),
      batcher_(BatcherSetup()) {
  for (int i = 0; i < config_.session_num; ++i) {
    SessionSlot::Options options;
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
    case SelectPolicy::kRoundRobin:
      return static_cast<int>(next_session_.fetch_add(1, std::memory_order_relaxed) % n);
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

absl::Status Model::Execute(int session, Work& work) noexcept {
  // Threads of a slot have no boundary above them that would catch.
  return Attempt([&] { return ExecuteOrThrow(session, work); });
}

absl::Status Model::ExecuteOrThrow(int session, Work& work) {
  RequestTiming& timing = work.timing;
  const int64_t start_ns = NowNs();
  timing.session = session;
  const std::shared_ptr<ModelVersion> version = this->version();
  timing.model_version = version->source().number.value_or(-1);
  timing.generation = version->generation;

  DecodedRequest request;
  std::vector<tensorflow::Tensor> outputs;
  absl::Status status = IsPast(work.deadline_us) ? DeadlinePassed() : work.Decode(*version, &request);
  if (status.ok()) status = CheckModelSpec(*version, request);
  const int64_t decoded_ns = NowNs();
  timing.decode_ns = decoded_ns - start_ns;
  if (status.ok()) {
    status = RunOnVersion(*version, session, request, &outputs);
    const int64_t ran_ns = NowNs();
    timing.run_ns = ran_ns - decoded_ns;
    if (status.ok()) status = work.Encode(*version, request, outputs);
    timing.encode_ns = NowNs() - ran_ns;
  }
  timing.total_ns = NowNs() - start_ns + timing.queue_ns;
  slots_[session]->stats().Record(status.code(), timing);
  return status;
}

absl::Status Model::Run(Work& work) {
  if (execution() == Execution::kPinned) {
    const auto waited = std::make_shared<WaitedWork>(work);
    uint64_t id = 0;
    if (absl::Status s = Start(waited, -1, &id); !s.ok()) return s;
    if (work.deadline_us != 0 && !waited->latch().WaitUntil(work.deadline_us)) {
      // Too late to wait; if it is running already there is no stopping it. Nor does an exception end the waiting: the
      // request uses what the caller lent.
      Attempt([&] { return Cancel(id, DeadlinePassed()); }).IgnoreError();
    }
    waited->latch().Wait();
    return waited->status();
  }
  const int64_t start_ns = NowNs();
  if (absl::Status s = Admit(); !s.ok()) {
    RecordRefusal(s, start_ns);
    return s;
  }
  Admission admission(this);
  const int session = PickSession();
  if (batcher_.on() && !work.alone) return RunBatched(work, session);
  admission.Enter(slots_[session].get());
  return Execute(session, work);
}

absl::Status Model::Start(std::shared_ptr<AsyncWork> work, int preferred_session, uint64_t* id) {
  const int64_t start_ns = NowNs();
  if (absl::Status s = Admit(); !s.ok()) {
    RecordRefusal(s, start_ns);
    return s;
  }
  Admission admission(this);
  const int session = preferred_session >= 0 ? preferred_session % static_cast<int>(slots_.size()) : PickSession();
  const absl::Status status = Attempt([&] {
    return batcher_.on() ? StartBatched(admission, std::move(work), session, id)
                         : StartAdmitted(admission, std::move(work), session, id);
  });
  if (!status.ok()) RecordRefusal(status, start_ns);
  return status;
}

// The id tells the slot, so that cancelling looks into one queue. It is never 0.
uint64_t Model::NextId(int session) {
  return next_id_.fetch_add(1, std::memory_order_relaxed) * slots_.size() + static_cast<uint64_t>(session);
}

absl::Status Model::StartAdmitted(Admission& admission, std::shared_ptr<AsyncWork> work, int session, uint64_t* id) {
  SessionSlot& slot = *slots_[session];
  const int64_t deadline_us = work->deadline_us;
  const int32_t priority = work->priority;
  const bool caller_keeps_deadline = work->caller_keeps_deadline;
  auto task = std::make_shared<SlotTask>(this, std::move(work), &slot);
  task->id = NextId(session);
  task->priority = priority;
  task->deadline_us = deadline_us;
  const uint64_t task_id = task->id;
  if (id != nullptr) *id = task_id;
  admission.Enter(&slot);
  if (absl::Status s = IsPast(deadline_us) ? DeadlinePassed() : slot.Submit(task); !s.ok()) return s;
  admission.HandOver();
  // Accepted: nothing from here on may fail, for the work will hear of its end.
  if (deadline_us != 0 && !caller_keeps_deadline) task->WatchDeadline();
  return absl::OkStatus();
}

absl::Status Model::Cancel(uint64_t id, const absl::Status& status) {
  if (BatchEntry* const entry = batcher_.Remove(id)) {
    entry->Fail(status);
    return absl::OkStatus();
  }
  // Tasks of the batcher have the number 0.
  const std::shared_ptr<Task> task = id == 0 ? nullptr : slots_[id % slots_.size()]->Remove(id);
  if (task == nullptr) return absl::NotFoundError(absl::StrCat("request ", id, ": not waiting"));
  task->Fail(status);
  return absl::OkStatus();
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
  std::unique_lock<std::mutex> lock(idle_mutex_);
  const auto idle = [this] { return in_flight_.load() == 0; };
  if (deadline_us == 0) {
    idle_.wait(lock, idle);
    return absl::OkStatus();
  }
  if (idle_.wait_until(lock, DeadlinePoint(deadline_us), idle)) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat("model: ", in_flight_.load(), " requests left at the deadline"));
}

void Model::Close() noexcept {
  if (state_.exchange(State::kClosed) == State::kClosed) return;
  progress_->unwanted = true;
  {
    std::lock_guard<std::mutex> lock(update_mutex_);
    stop_updates_ = true;
  }
  update_wake_.notify_all();
  if (updater_.joinable()) updater_.join();
  reaper_.Stop();
  const absl::Status freed =
      StatusWithoutThrowing(absl::StatusCode::kCancelled, "request: the model was freed while it waited");
  batcher_.Stop(freed);
  for (auto& slot : slots_) slot->Stop(freed);
  {
    std::unique_lock<std::mutex> lock(idle_mutex_);
    idle_.wait(lock, [this] { return in_flight_.load() == 0; });
  }
  std::vector<std::shared_ptr<ModelVersion>> retired;
  std::shared_ptr<ModelVersion> current;
  {
    std::lock_guard<std::mutex> lock(version_mutex_);
    retired.swap(retired_);
    current.swap(version_);
  }
}

}  // namespace processor
