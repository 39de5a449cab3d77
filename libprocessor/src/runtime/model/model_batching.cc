// SPDX-License-Identifier: Apache-2.0
// How a model's requests go through its batcher: reading each, running those of one kind together, writing each.
#include <algorithm>
#include <utility>

#include "src/runtime/batching/batch_run.h"
#include "src/runtime/model/model.h"
#include "src/runtime/model/model_admission.h"
#include "src/runtime/requests/deadline.h"
#include "src/runtime/requests/exception_status.h"

namespace processor {

// A request at the batcher. It holds the version that it was read for until it ends.
class Model::BatchedRequest : public BatchEntry, public Call {
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
    const int64_t ran_ns = NowNs();
    if (cancellation.requested()) status = cancellation.why();
    if (status.ok()) status = Attempt([this] { return work_->Encode(*version, request, outputs); });
    const int64_t end_ns = NowNs();
    timing.encode_ns = end_ns - ran_ns;
    timing.total_ns = end_ns - start_ns_;
    model_->slots_[timing.session]->stats().Record(status.code(), timing);
    work_->timing = timing;
    return status;
  }

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
    if (cancellation.requested()) return cancellation.why();
    const int64_t begin_ns = NowNs();
    version = model_->version();
    timing.model_version = version->source().number.value_or(-1);
    timing.generation = version->generation;
    if (absl::Status s = work_->Decode(*version, &request); !s.ok()) return s;
    if (absl::Status s = model_->CheckModelSpec(*version, request); !s.ok()) return s;
    // What changes state has to be run once for each request, and in no trial.
    if (!version->writes_state() && version->output_rows.MayJoin(request)) {
      rows = RowsOf(request);
      kind = KindOf(request) + version->generation;
    }
    timing.decode_ns = NowNs() - begin_ns;
    return absl::OkStatus();
  }

  Work* const work_;
  const int64_t start_ns_;
};

// Of a caller who waits, and asks for its end. What it reads and writes is lent.
class Model::CallerRequest : public BatchedRequest {
 public:
  CallerRequest(Model* model, Work* work) : BatchedRequest(model, work) { model_->watch_.Add(this, work->deadline_us); }
  ~CallerRequest() override { model_->watch_.Remove(this); }

  void Ran() noexcept override {}
  void Fail(const absl::Status&) noexcept override {}
  // While it waits, its own thread looks at the clock; a model that goes ends what waits by itself.
  bool Stop(const absl::Status& why) noexcept override { return cancellation.Request(why); }
};

// Of one that hears of its end. It is admitted, and keeps itself, until it has been run or never will be.
class Model::StartedRequest : public BatchedRequest {
 public:
  StartedRequest(Model* model, std::shared_ptr<AsyncWork> work)
      : BatchedRequest(model, work.get()), async_work_(std::move(work)) {}

  /// `self`: what keeps it.
  void Watch(std::shared_ptr<StartedRequest> self) noexcept {
    self_ = std::move(self);
    model_->watch_.Add(this, async_work_->caller_keeps_deadline ? 0 : async_work_->deadline_us);
    id = number();
  }

  /// Takes it out again: it was not queued.
  /// \return whether nobody has heard of its end, and will.
  bool Unwatch() noexcept {
    model_->watch_.Remove(this);
    self_.reset();
    return TakeEnd();
  }

  void Ran() noexcept override {
    if (!KeepEnd()) return Leave(nullptr);
    const absl::Status end = Finish();
    Leave(&end);
  }

  void Fail(const absl::Status& why) noexcept override {
    if (!TakeEnd()) return Leave(nullptr);
    RequestTiming& told = async_work_->timing;
    told = timing;
    told.queue_ns = NowNs() - start_ns();
    model_->RecordRefusal(why, start_ns());
    Leave(&why);
  }

  bool Stop(const absl::Status& why) noexcept override {
    const bool first = cancellation.Request(why);
    if (BatchEntry* const waiting = model_->batcher_.Remove(id)) {
      waiting->Fail(why);
      return true;
    }
    if (!async_work_->may_end_early) return first;
    if (!TakeEnd()) return false;
    async_work_->timing.total_ns = NowNs() - start_ns();
    model_->RecordRefusal(why, start_ns());
    async_work_->Done(why);
    return true;
  }

 private:
  // `end`: to be told; null: it has been.
  void Leave(const absl::Status* end) noexcept {
    const std::shared_ptr<StartedRequest> self = std::move(self_);
    model_->watch_.Remove(this);
    // The caller may free the model as soon as it has heard, which waits for Leave(): nothing of the model is held then.
    outputs.clear();
    request = DecodedRequest();
    version.reset();
    if (end != nullptr) async_work_->Done(*end);
    async_work_.reset();
    model_->Leave();
  }

  std::shared_ptr<AsyncWork> async_work_;
  std::shared_ptr<StartedRequest> self_;
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
  setup.places = std::max(config_.worker_threads, 1);
  setup.max_waiting = static_cast<size_t>(config_.max_queue_size) * static_cast<size_t>(config_.session_num);
  setup.run = [this](int session, BatchEntry* first) { RunChain(session, first); };
  setup.call_worker = [this](int session) {
    return Attempt([&] { return slots_[session]->Serve(serve_tasks_[session]); });
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
  if (IsPast(work->deadline_us)) return DeadlinePassed();
  const auto request = std::make_shared<StartedRequest>(this, std::move(work));
  request->Watch(request);
  if (id != nullptr) *id = request->id;
  if (absl::Status s = batcher_.Start(request.get(), session); !s.ok()) {
    return request->Unwatch() ? s : absl::OkStatus();
  }
  admission.HandOver();
  // Accepted: nothing from here on may fail, for the work will hear of its end. Who was stopped before it was listed is not
  // to wait there.
  if (request->cancellation.requested()) {
    if (BatchEntry* const waiting = batcher_.Remove(request->number())) waiting->Fail(request->cancellation.why());
  }
  return absl::OkStatus();
}

void Model::RunChain(int session, BatchEntry* first) noexcept {
  const absl::Status status = Attempt([&] { return RunChainOrThrow(session, first); });
  if (status.ok()) return;
  for (BatchEntry* entry = first; entry != nullptr; entry = entry->next()) {
    auto* const one = static_cast<BatchedRequest*>(entry);
    one->timing.session = session;
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
    one->timing.session = session;
    one->timing.queue_ns = start_ns - one->start_ns() - one->timing.decode_ns;
    if (one->deadline_us != 0 && start_ns / 1000 >= one->deadline_us) {
      one->status = DeadlinePassed();
    } else if (one->cancellation.requested()) {
      one->status = one->cancellation.why();
    } else if (one->version != version) {
      // Kinds of two versions that are equal by chance.
      const Cancellation::Scope scope(&one->cancellation);
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
  const auto run_for = [&](Cancellation& cancellation, const DecodedRequest& request,
                           std::vector<tensorflow::Tensor>* outputs) {
    const Cancellation::Scope scope(&cancellation);
    return RunOnVersion(*version, session, request, outputs);
  };
  const RunRequest run = [&](const DecodedRequest& request, std::vector<tensorflow::Tensor>* outputs) {
    std::vector<Cancellation*> cancellations;
    for (BatchedRequest* one : members) {
      if (&one->request == &request) return run_for(one->cancellation, request, outputs);
      cancellations.push_back(&one->cancellation);
    }
    JointCancellation joint(cancellations);
    return run_for(joint.all(), request, outputs);
  };
  const JointOutcome outcome = RunTogether(run, &version->output_rows, &requests);
  load.fetch_sub(static_cast<int>(members.size()), std::memory_order_relaxed);
  const int64_t run_ns = NowNs() - start_ns;
  for (size_t i = 0; i < members.size(); ++i) {
    members[i]->outputs = std::move(requests[i].outputs);
    members[i]->status = std::move(requests[i].status);
    members[i]->timing.run_ns = run_ns;
    if (outcome.together) members[i]->timing.batch_rows = rows;
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
