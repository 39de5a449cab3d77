// SPDX-License-Identifier: Apache-2.0
// How a model's requests go through its batcher: reading each, running those of one kind together, writing each.
#include <utility>

#include "src/runtime/batch_run.h"
#include "src/runtime/deadline.h"
#include "src/runtime/deadline_watch.h"
#include "src/runtime/exception_status.h"
#include "src/runtime/model.h"
#include "src/runtime/model_admission.h"

namespace processor {

// A request at the batcher. It holds the version that it was read for until it ends.
class Model::BatchedRequest : public BatchEntry {
 public:
  BatchedRequest(Model* model, Work* work) : model_(model), work_(work), start_ns_(NowNs()) {
    priority = work->priority;
    deadline_us = work->deadline_us;
  }

  absl::Status Prepare() noexcept override {
    return Attempt([this] { return Read(); });
  }

  /// Writes the response, or answers why there is none. After the run, once.
  absl::Status Finish() noexcept {
    RequestTiming& timing = work_->timing;
    const int64_t ran_ns = NowNs();
    if (status.ok()) status = Attempt([this] { return work_->Encode(*version, request, outputs); });
    const int64_t end_ns = NowNs();
    timing.encode_ns = end_ns - ran_ns;
    timing.total_ns = end_ns - start_ns_;
    model_->slots_[timing.session]->stats().Record(status.code(), timing);
    return status;
  }

  RequestTiming& timing() { return work_->timing; }
  int64_t start_ns() const { return start_ns_; }

  std::shared_ptr<ModelVersion> version;
  DecodedRequest request;
  std::vector<tensorflow::Tensor> outputs;
  absl::Status status;

 protected:
  Model* const model_;

 private:
  absl::Status Read() {
    if (IsPast(deadline_us)) return DeadlinePassed();
    const int64_t begin_ns = NowNs();
    version = model_->version();
    work_->timing.model_version = version->source().number.value_or(-1);
    work_->timing.generation = version->generation;
    if (absl::Status s = work_->Decode(*version, &request); !s.ok()) return s;
    if (absl::Status s = model_->CheckModelSpec(*version, request); !s.ok()) return s;
    // What changes state has to be run once for each request, and in no trial.
    if (!version->writes_state() && version->output_rows.MayJoin(request)) {
      rows = RowsOf(request);
      kind = KindOf(request) + version->generation;
    }
    work_->timing.decode_ns = NowNs() - begin_ns;
    return absl::OkStatus();
  }

  Work* const work_;
  const int64_t start_ns_;
};

// Of a caller who waits, and asks for its end.
class Model::CallerRequest : public BatchedRequest {
 public:
  using BatchedRequest::BatchedRequest;
  void Ran() noexcept override {}
  void Fail(const absl::Status&) noexcept override {}
};

// Of one that hears of its end. It is admitted, and keeps itself, until then.
class Model::StartedRequest : public BatchedRequest {
 public:
  StartedRequest(Model* model, std::shared_ptr<AsyncWork> work)
      : BatchedRequest(model, work.get()), async_work_(std::move(work)), watch_(&model->reaper_) {}

  void Ran() noexcept override { End(Finish()); }

  void Fail(const absl::Status& why) noexcept override {
    timing().queue_ns = NowNs() - start_ns();
    model_->RecordRefusal(why, start_ns());
    End(why);
  }

  void Keep(std::shared_ptr<StartedRequest> self) { self_ = std::move(self); }
  void WatchDeadline() noexcept { watch_.Begin(deadline_us, id); }

 private:
  void End(const absl::Status& end) noexcept {
    const std::shared_ptr<StartedRequest> self = std::move(self_);
    watch_.End(deadline_us, id);
    // The caller may free the model as soon as it has heard, which waits for Leave(): nothing of the model is held then.
    outputs.clear();
    request = DecodedRequest();
    version.reset();
    async_work_->Done(end);
    async_work_.reset();
    model_->Leave();
  }

  std::shared_ptr<AsyncWork> async_work_;
  std::shared_ptr<StartedRequest> self_;
  DeadlineWatch watch_;
};

// Brings a thread of a slot to the batcher.
class Model::ServeTask : public Task {
 public:
  ServeTask(Batcher* batcher, int session) : batcher_(batcher), session_(session) {}
  void Run(int session) noexcept override { batcher_->Serve(session); }
  void Fail(const absl::Status&) noexcept override { batcher_->ReturnPlace(session_); }

 private:
  Batcher* const batcher_;
  const int session_;
};

Batcher::Setup Model::BatcherSetup() {
  Batcher::Setup setup;
  setup.sessions = config_.session_num;
  setup.places = config_.worker_threads;
  setup.max_waiting = static_cast<size_t>(config_.max_queue_size) * static_cast<size_t>(config_.session_num);
  setup.run = [this](int session, BatchEntry* first) { RunChain(session, first); };
  setup.call_worker = [this](int session) {
    return Attempt([&] { return slots_[session]->Submit(serve_tasks_[session], /*beyond_limit=*/true); });
  };
  return setup;
}

std::shared_ptr<Task> Model::MakeServeTask(int session) { return std::make_shared<ServeTask>(&batcher_, session); }

absl::Status Model::RunBatched(Work& work, int session) {
  CallerRequest request(this, &work);
  const absl::Status status = batcher_.Run(request, session);
  if (status.ok()) return request.Finish();
  RecordRefusal(status, request.start_ns());
  return status;
}

absl::Status Model::StartBatched(Admission& admission, std::shared_ptr<AsyncWork> work, int session, uint64_t* id) {
  const bool watch = work->deadline_us != 0 && !work->caller_keeps_deadline;
  const auto request = std::make_shared<StartedRequest>(this, std::move(work));
  request->id = NextId(session);
  if (id != nullptr) *id = request->id;
  if (IsPast(request->deadline_us)) return DeadlinePassed();
  request->Keep(request);
  if (absl::Status s = batcher_.Start(request.get(), session); !s.ok()) {
    request->Keep(nullptr);
    return s;
  }
  admission.HandOver();
  // Accepted: nothing from here on may fail, for the work will hear of its end.
  if (watch) request->WatchDeadline();
  return absl::OkStatus();
}

void Model::RunChain(int session, BatchEntry* first) noexcept {
  const absl::Status status = Attempt([&] { return RunChainOrThrow(session, first); });
  if (status.ok()) return;
  for (BatchEntry* entry = first; entry != nullptr; entry = entry->next()) {
    auto* const one = static_cast<BatchedRequest*>(entry);
    one->timing().session = session;
    one->status = status;
  }
}

absl::Status Model::RunChainOrThrow(int session, BatchEntry* first) {
  const int64_t start_ns = NowNs();
  std::vector<BatchedRequest*> members;
  std::vector<JointRequest> requests;
  const std::shared_ptr<ModelVersion>& version = static_cast<BatchedRequest*>(first)->version;
  int64_t rows = 0;
  for (BatchEntry* entry = first; entry != nullptr; entry = entry->next()) {
    auto* const one = static_cast<BatchedRequest*>(entry);
    one->timing().session = session;
    one->timing().queue_ns = start_ns - one->start_ns() - one->timing().decode_ns;
    if (one->deadline_us != 0 && start_ns / 1000 >= one->deadline_us) {
      one->status = DeadlinePassed();
    } else if (one->version != version) {
      // Kinds of two versions that are equal by chance.
      one->status = RunOnVersion(*one->version, session, one->request, &one->outputs);
    } else {
      members.push_back(one);
      requests.push_back({&one->request, one->rows, {}, absl::OkStatus()});
      rows += one->rows;
    }
  }
  if (members.empty()) return absl::OkStatus();
  std::atomic<int>& load = slots_[session]->load();
  load.fetch_add(static_cast<int>(members.size()), std::memory_order_relaxed);
  const RunRequest run = [&](const DecodedRequest& request, std::vector<tensorflow::Tensor>* outputs) {
    return RunOnVersion(*version, session, request, outputs);
  };
  const JointOutcome outcome = RunTogether(run, &version->output_rows, &requests);
  load.fetch_sub(static_cast<int>(members.size()), std::memory_order_relaxed);
  const int64_t run_ns = NowNs() - start_ns;
  for (size_t i = 0; i < members.size(); ++i) {
    members[i]->outputs = std::move(requests[i].outputs);
    members[i]->status = std::move(requests[i].status);
    members[i]->timing().run_ns = run_ns;
    if (outcome.together) members[i]->timing().batch_rows = rows;
  }
  if (outcome.together) {
    batch_stats_.Record(rows, static_cast<int64_t>(members.size()));
  } else {
    for (const BatchedRequest* one : members) batch_stats_.Record(one->rows, 1);
    if (outcome.repeated) batch_stats_.repeated.fetch_add(1, std::memory_order_relaxed);
  }
  return absl::OkStatus();
}

}  // namespace processor
