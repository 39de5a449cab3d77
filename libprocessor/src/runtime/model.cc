// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/model.h"

#include <charconv>
#include <chrono>
#include <exception>
#include <filesystem>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/runtime/deadline.h"
#include "src/runtime/log.h"
#include "src/runtime/saved_model.h"
#include "src/runtime/warmup.h"

namespace processor {
namespace {

// The number of a folder in the layout of TensorFlow Serving: "/models/ranking/7".
std::optional<int64_t> NumberOfFolder(const std::string& dir) {
  std::filesystem::path path(dir);
  if (path.filename().empty()) path = path.parent_path();
  const std::string name = path.filename().string();
  int64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || end != name.data() + name.size() || number < 0) return std::nullopt;
  return number;
}

absl::Status DeadlinePassed() { return absl::DeadlineExceededError("request: the deadline had passed before it ran"); }

bool IsPast(int64_t deadline_us) { return deadline_us != 0 && NowNs() / 1000 >= deadline_us; }

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
  void Done(const absl::Status& status) override {
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
      : model_(model), work_(std::move(work)), slot_(slot), start_ns_(NowNs()) {}

  void Run(int session) override {
    work_->timing.queue_ns = NowNs() - start_ns_;
    End(model_->Execute(session, *work_));
  }

  /// Has the deadline looked after while the task waits. It may have ended by now: then nothing is left behind, for
  /// either this sees that it has, or End() sees that it is watched.
  void WatchDeadline() {
    watched_.store(true);
    model_->reaper_.Add(deadline_us, id);
    if (ended_.load()) ForgetDeadline();
  }

  void Fail(const absl::Status& status) override {
    work_->timing.queue_ns = NowNs() - start_ns_;
    model_->RecordRefusal(status, start_ns_);
    End(status);
  }

 private:
  void End(const absl::Status& status) {
    slot_->load().fetch_sub(1, std::memory_order_relaxed);
    ended_.store(true);
    ForgetDeadline();
    // The caller may free the model as soon as it has heard, which waits for Leave().
    work_->Done(status);
    work_.reset();
    model_->Leave();
  }

  void ForgetDeadline() {
    if (watched_.load()) model_->reaper_.Remove(deadline_us, id);
  }

  Model* const model_;
  std::shared_ptr<AsyncWork> work_;
  SessionSlot* const slot_;
  const int64_t start_ns_;
  std::atomic<bool> watched_{false};
  std::atomic<bool> ended_{false};
};

Model::Model(ModelConfig config, std::string base_dir)
    : config_(std::move(config)),
      base_dir_(std::move(base_dir)),
      timeline_(config_.timeline),
      reaper_([this](uint64_t id) { Cancel(id, DeadlinePassed()).IgnoreError(); }) {
  for (int i = 0; i < config_.session_num; ++i) {
    SessionSlot::Options options;
    options.name = absl::StrCat("session-", i);
    options.index = i;
    options.intra_op_threads = config_.intra_op_parallelism_threads;
    options.worker_threads = config_.worker_threads;
    options.max_queue_size = config_.max_queue_size;
    if (!config_.cpusets.empty()) options.cpus = config_.cpusets[i];
    slots_.push_back(std::make_unique<SessionSlot>(std::move(options)));
  }
}

Model::~Model() { Close(); }

absl::Status Model::Load(ModelConfig config, const std::string& base_dir, std::shared_ptr<Model>* model) {
  std::shared_ptr<Model> result(new Model(std::move(config), base_dir));
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

absl::Status Model::FindSource(VersionSource* source) {
  source->saved_model_dir = config_.savedmodel_dir.empty() ? base_dir_ : config_.savedmodel_dir;
  source->checkpoint_prefix.clear();
  source->number = config_.model_version.has_value() ? config_.model_version : NumberOfFolder(source->saved_model_dir);
  if (config_.checkpoint_dir.empty()) return absl::OkStatus();

  Checkpoint checkpoint;
  if (absl::Status s = FindCheckpoint(config_.checkpoint_dir, &checkpoint); !s.ok()) return s;
  source->checkpoint_prefix = checkpoint.prefix;
  if (!config_.model_version.has_value()) source->number = checkpoint.step;
  std::lock_guard<std::mutex> lock(version_mutex_);
  checkpoint_ = checkpoint;
  std::string refused;
  if (checkpoint.incomplete_step >= 0) {
    refused = absl::StrCat("checkpoint ", checkpoint.incomplete_step, " passed over: data files are missing, ",
                           checkpoint.step, " is the latest complete one");
  }
  if (checkpoint.incremental_step >= 0) {
    refused = absl::StrCat("incremental checkpoint ", checkpoint.incremental_step, " refused: only full checkpoints are "
                           "applied, ", checkpoint.step, " is the latest");
  }
  if (refused != refused_update_ && !refused.empty()) Log(Severity::kWarning, refused);
  refused_update_ = refused;
  return absl::OkStatus();
}

absl::Status Model::WaitForSource(VersionSource* source) {
  const int64_t until_ns = NowNs() + int64_t{60} * 1000000000 * config_.init_timeout_minutes;
  for (;;) {
    absl::Status status = FindSource(source);
    if (status.ok()) {
      tensorflow::MetaGraphDef meta_graph;
      status = ReadSavedModel(source->saved_model_dir, &meta_graph);
      // Anything but absence is for Load() to report.
      if (!absl::IsNotFound(status)) return absl::OkStatus();
    }
    if (!absl::IsNotFound(status) || config_.init_timeout_minutes <= 0) return status;
    if (NowNs() >= until_ns) {
      return absl::Status(status.code(), absl::StrCat(status.message(), ", after init_timeout_minutes (",
                                                      config_.init_timeout_minutes, ")"));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(250));
  }
}

absl::Status Model::LoadFirst() {
  VersionSource source;
  if (config_.init_timeout_minutes > 0) {
    if (absl::Status s = WaitForSource(&source); !s.ok()) return s;
  } else if (absl::Status s = FindSource(&source); !s.ok()) {
    return s;
  }
  return LoadVersion(source, /*background=*/false);
}

absl::Status Model::LoadVersion(const VersionSource& source, bool background) {
  const int64_t start_ns = NowNs();
  std::shared_ptr<ModelVersion> loaded;
  if (absl::Status s = ModelVersion::Load(config_, source, slots_, background, &loaded); !s.ok()) return s;
  if (absl::Status s = WarmUp(config_, base_dir_, slots_.size(), *loaded); !s.ok()) return s;
  loaded->load_ms = static_cast<double>(NowNs() - start_ns) / 1e6;

  std::lock_guard<std::mutex> lock(version_mutex_);
  loaded->generation = ++generation_;
  if (version_ != nullptr) retired_.push_back(std::move(version_));
  version_ = std::move(loaded);
  return absl::OkStatus();
}

std::shared_ptr<ModelVersion> Model::version() const {
  std::lock_guard<std::mutex> lock(version_mutex_);
  return version_;
}

void Model::FollowCheckpoints() {
  const auto poll = std::chrono::duration<double>(config_.checkpoint_poll_seconds);
  auto next = std::chrono::steady_clock::now() + poll;
  std::unique_lock<std::mutex> lock(update_mutex_);
  while (!stop_updates_) {
    bool waiting_for_requests = false;
    {
      std::lock_guard<std::mutex> version_lock(version_mutex_);
      waiting_for_requests = !retired_.empty();
    }
    // A retired version is looked at again soon: its memory is wanted back.
    const auto wake = std::chrono::steady_clock::now() + std::chrono::milliseconds(10);
    if (waiting_for_requests && wake < next) {
      update_wake_.wait_until(lock, wake);
    } else {
      update_wake_.wait_until(lock, next);
    }
    if (stop_updates_) return;
    lock.unlock();
    ReleaseRetired();
    if (std::chrono::steady_clock::now() >= next) {
      TryUpdate();
      next = std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(poll);
    }
    lock.lock();
  }
}

absl::Status Model::Update() {
  VersionSource source;
  if (absl::Status s = FindSource(&source); !s.ok()) return s;
  if (source.checkpoint_prefix == version()->source().checkpoint_prefix) return absl::OkStatus();
  if (absl::Status s = LoadVersion(source, /*background=*/true); !s.ok()) return s;
  Log(Severity::kInfo, absl::StrCat("checkpoint '", source.checkpoint_prefix, "': serving"));
  return absl::OkStatus();
}

void Model::TryUpdate() {
  absl::Status status;
  // The thread has no boundary above it that would catch.
  try {
    status = Update();
  } catch (const std::exception& e) {
    status = absl::InternalError(e.what());
  }
  const std::string error = status.ok() ? "" : status.ToString();
  std::lock_guard<std::mutex> lock(version_mutex_);
  // Once per fault, not once per poll.
  if (!error.empty() && error != update_error_) {
    Log(Severity::kError, absl::StrCat("update: ", error, "; the version before goes on serving"));
  }
  update_error_ = error;
}

void Model::ReleaseRetired() {
  std::vector<std::shared_ptr<ModelVersion>> unused;
  {
    std::lock_guard<std::mutex> lock(version_mutex_);
    for (size_t i = 0; i < retired_.size();) {
      // Ours is the last reference, and nobody can take another from a version that is no longer current.
      if (retired_[i].use_count() == 1) {
        unused.push_back(std::move(retired_[i]));
        retired_.erase(retired_.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        ++i;
      }
    }
  }
}

absl::Status Model::Admit() {
  in_flight_.fetch_add(1);
  const State state = state_.load();
  if (state == State::kServing) return absl::OkStatus();
  Leave();
  if (state == State::kDraining) return absl::UnavailableError("model: draining, expected one that serves");
  return absl::FailedPreconditionError("model: freed, expected one that is loaded");
}

void Model::Leave() {
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

void Model::RecordRefusal(const absl::Status& status, int64_t start_ns) {
  RequestTiming timing;
  timing.queue_ns = timing.total_ns = NowNs() - start_ns;
  refused_.Record(status.code(), timing);
}

absl::Status Model::CheckModelSpec(const ModelVersion& version, const DecodedRequest& request) const {
  if (!request.model_name.empty() && config_.model_name.has_value() && request.model_name != *config_.model_name) {
    return absl::NotFoundError(absl::StrCat("model '", request.model_name, "': not loaded, expected '",
                                            *config_.model_name, "'"));
  }
  if (!request.version_label.empty()) {
    return absl::NotFoundError(absl::StrCat("version label '", request.version_label, "': a single model has no labels"));
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

absl::Status Model::Execute(int session, Work& work) {
  // Threads of a slot have no boundary above them that would catch.
  try {
    return ExecuteOrThrow(session, work);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("request: no memory left");
  } catch (const std::exception& e) {
    return absl::InternalError(absl::StrCat("request: ", e.what()));
  }
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
  if (config_.execution == Execution::kPinned) {
    const auto waited = std::make_shared<WaitedWork>(work);
    uint64_t id = 0;
    if (absl::Status s = Start(waited, -1, &id); !s.ok()) return s;
    if (work.deadline_us != 0 && !waited->latch().WaitUntil(work.deadline_us)) {
      // Too late to wait; if it is running already there is no stopping it.
      Cancel(id, DeadlinePassed()).IgnoreError();
    }
    waited->latch().Wait();
    return waited->status();
  }
  const int64_t start_ns = NowNs();
  if (absl::Status s = Admit(); !s.ok()) {
    RecordRefusal(s, start_ns);
    return s;
  }
  const int session = PickSession();
  std::atomic<int>& load = slots_[session]->load();
  load.fetch_add(1, std::memory_order_relaxed);
  const absl::Status status = Execute(session, work);
  load.fetch_sub(1, std::memory_order_relaxed);
  Leave();
  return status;
}

absl::Status Model::Start(std::shared_ptr<AsyncWork> work, int preferred_session, uint64_t* id) {
  const int64_t start_ns = NowNs();
  if (absl::Status s = Admit(); !s.ok()) {
    RecordRefusal(s, start_ns);
    return s;
  }
  const int n = static_cast<int>(slots_.size());
  const int session = preferred_session >= 0 ? preferred_session % n : PickSession();
  SessionSlot& slot = *slots_[session];
  const int64_t deadline_us = work->deadline_us;
  const int32_t priority = work->priority;
  const bool caller_keeps_deadline = work->caller_keeps_deadline;
  auto task = std::make_shared<SlotTask>(this, std::move(work), &slot);
  // The id tells the slot, so that cancelling looks into one queue.
  task->id = next_id_.fetch_add(1, std::memory_order_relaxed) * n + session;
  task->priority = priority;
  task->deadline_us = deadline_us;
  const uint64_t task_id = task->id;
  if (id != nullptr) *id = task_id;
  slot.load().fetch_add(1, std::memory_order_relaxed);
  absl::Status status = IsPast(deadline_us) ? DeadlinePassed() : slot.Submit(task);
  if (!status.ok()) {
    slot.load().fetch_sub(1, std::memory_order_relaxed);
    RecordRefusal(status, start_ns);
    Leave();
    return status;
  }
  if (deadline_us != 0 && !caller_keeps_deadline) task->WatchDeadline();
  return absl::OkStatus();
}

absl::Status Model::Cancel(uint64_t id, const absl::Status& status) {
  const std::shared_ptr<Task> task = slots_[id % slots_.size()]->Remove(id);
  if (task == nullptr) return absl::NotFoundError(absl::StrCat("request ", id, ": not waiting"));
  task->Fail(status);
  return absl::OkStatus();
}

absl::Status Model::SetCpuset(std::string_view cpuset) {
  if (absl::Status s = Admit(); !s.ok()) return s;
  const CpuSet allowed = AllowedCpus();
  std::vector<CpuSet> groups(slots_.size(), allowed);
  absl::Status status;
  if (!cpuset.empty()) status = ParseCpusets(cpuset, static_cast<int>(slots_.size()), allowed, &groups);
  if (status.ok()) {
    for (size_t i = 0; i < slots_.size(); ++i) slots_[i]->SetCpus(groups[i]);
  }
  Leave();
  return status;
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

void Model::Close() {
  if (state_.exchange(State::kClosed) == State::kClosed) return;
  {
    std::lock_guard<std::mutex> lock(update_mutex_);
    stop_updates_ = true;
  }
  update_wake_.notify_all();
  if (updater_.joinable()) updater_.join();
  reaper_.Stop();
  for (auto& slot : slots_) slot->Stop(absl::CancelledError("request: the model was freed while it waited"));
  {
    std::unique_lock<std::mutex> lock(idle_mutex_);
    idle_.wait(lock, [this] { return in_flight_.load() == 0; });
  }
  std::vector<std::shared_ptr<ModelVersion>> versions;
  {
    std::lock_guard<std::mutex> lock(version_mutex_);
    versions.swap(retired_);
    versions.push_back(std::move(version_));
  }
}

}  // namespace processor
