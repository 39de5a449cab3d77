// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/model/batched_requests.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <utility>

#include "src/runtime/batching/batch_run.h"
#include "src/runtime/requests/deadline.h"
#include "src/runtime/requests/exception_status.h"
#include "src/runtime/requests/latch.h"
#include "src/runtime/threads/cpuset.h"

namespace processor {

// A request that the batcher holds. It keeps the version for which it was decoded until it ends.
class BatchedRequests::Request : public BatchEntry, public RequestCall {
 public:
  Request(BatchedRequests* requests, Work* work)
      : batcher_(requests->batcher_),
        parts_(requests->parts_),
        work_(work),
        places_(requests->places_),
        start_ns_(NowNs()) {
    priority = work->priority;
    deadline_us = work->deadline_us;
  }

  absl::Status Prepare() noexcept override {
    if (version != nullptr) return absl::OkStatus();
    return Attempt([this] { return Read(); });
  }

  /// Finds out which rows of tiered tables should be read before it runs; `early` is null if there are none. While another
  /// place is left, the op reads them sooner.
  void FindRows() noexcept {
    if (!version->reads_early() || parts_.gate.in_flight() < places_) return;
    const absl::Status found = Attempt([this] { return early = version->RowsToRead(request), absl::OkStatus(); });
    if (!found.ok()) early = nullptr;
  }

  /// What has been read is checked on the thread that runs the request.
  void TakeRows() {
    if (early != nullptr) early->Take();
  }

  /// Writes the response, or returns why there is none. Called once, after the run.
  absl::Status Finish() noexcept {
    const int64_t ran_ns = NowNs();
    if (cancellation.requested()) status = cancellation.why();
    if (status.ok()) status = Attempt([this] { return work_->Encode(*version, request, outputs); });
    const int64_t end_ns = NowNs();
    timing.encode_ns = end_ns - ran_ns;
    timing.total_ns = end_ns - start_ns_;
    parts_.slots[timing.session].stats().Record(status.code(), timing);
    work_->timing = timing;
    return status;
  }

  int64_t start_ns() const { return start_ns_; }

  std::shared_ptr<ModelVersion> version;
  DecodedRequest request;
  std::shared_ptr<EarlyRows> early;
  std::vector<tensorflow::Tensor> outputs;
  absl::Status status;

 protected:
  Batcher& batcher_;
  ModelParts& parts_;

 private:
  absl::Status Read() {
    if (IsPast(deadline_us)) return DeadlinePassed();
    if (cancellation.requested()) return cancellation.why();
    const int64_t begin_ns = NowNs();
    version = parts_.versions.current();
    timing.model_version = version->source().number.value_or(-1);
    timing.generation = version->generation;
    if (absl::Status s = work_->Decode(*version, &request); !s.ok()) return s;
    if (absl::Status s = parts_.CheckNames(*version, request); !s.ok()) return s;
    // A signature that changes state must run exactly once for each request, and never in a trial.
    if (!version->writes_state() && version->output_rows.MayJoin(request)) {
      rows = RowsOf(request);
      kind = KindOf(request) + version->generation;
    }
    timing.decode_ns = NowNs() - begin_ns;
    return absl::OkStatus();
  }

  Work* const work_;
  const int64_t places_;  // of all sessions
  const int64_t start_ns_;
};

// A request whose caller waits for its end. Its inputs and outputs are borrowed from the caller.
class BatchedRequests::WaitedRequest : public Request {
 public:
  WaitedRequest(BatchedRequests* requests, Work* work) : Request(requests, work) {
    parts_.watch.Add(this, work->deadline_us);
  }
  ~WaitedRequest() override { parts_.watch.Remove(this); }

  /// Reads the rows on no place of a session. \return DEADLINE_EXCEEDED if the deadline comes first.
  absl::Status WaitForRows() {
    FindRows();
    if (early == nullptr) return absl::OkStatus();
    came_ = std::make_shared<Latch>();
    EarlyRows::Start(early, [came = came_] { came->Set(); });
    waits_.store(came_.get());
    // From here on, a thread that stops the request ends the wait.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    bool in_time = true;
    if (!cancellation.requested()) {
      deadline_us == 0 ? came_->Wait() : static_cast<void>(in_time = came_->WaitUntil(deadline_us));
    }
    if (cancellation.requested()) return cancellation.why();
    return in_time ? absl::OkStatus() : DeadlinePassed();
  }

  void Ran() noexcept override { Finish().IgnoreError(); }
  void Fail(const absl::Status&) noexcept override {}
  // While it waits in the batcher, its own thread checks the deadline, and freeing a model ends all waiting requests.
  bool Stop(const absl::Status& why) noexcept override {
    const bool first = cancellation.Request(why);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (Latch* const waits = waits_.load()) waits->Set();
    return first;
  }

 private:
  // Destroyed once the watch knows the request no more, and so after the last Stop().
  std::shared_ptr<Latch> came_;
  std::atomic<Latch*> waits_{nullptr};
};

// An asynchronous request. It is admitted, and owns itself, until it has been run or has failed.
class BatchedRequests::StartedRequest : public Request, public std::enable_shared_from_this<StartedRequest> {
 public:
  StartedRequest(BatchedRequests* requests, std::shared_ptr<AsyncWork> work)
      : Request(requests, work.get()), async_work_(std::move(work)) {}

  /// `self`: the reference by which the request owns itself.
  void Watch(std::shared_ptr<StartedRequest> self) noexcept {
    self_ = std::move(self);
    parts_.watch.Add(this, async_work_->caller_keeps_deadline ? 0 : async_work_->deadline_us);
    id = number();
  }

  /// Removes the request from the watch, because it was not queued.
  /// \return whether its end is still to be reported.
  bool Unwatch() noexcept {
    parts_.watch.Remove(this);
    self_.reset();
    return TakeEnd();
  }

  // Starts to read rows of tiered tables that are not in memory.
  bool Postpone() noexcept override {
    FindRows();
    if (early == nullptr) return false;
    const std::shared_ptr<EarlyRows> rows = early;
    std::function<void()> came;
    const auto self = shared_from_this();
    if (!Attempt([&] { return came = [self] { self->RowsCame(); }, absl::OkStatus(); }).ok()) return false;
    waits_for_rows_.store(true);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    // From here on, a thread that stops the request may end it. One that was stopped before ends when it is run.
    if (cancellation.requested()) {
      const bool is_mine = waits_for_rows_.exchange(false);
      if (is_mine) early = nullptr;
      return !is_mine;
    }
    EarlyRows::Start(rows, std::move(came));
    return true;
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
    parts_.RecordRefusal(why, start_ns());
    Leave(&why);
  }

  bool Stop(const absl::Status& why) noexcept override {
    const bool first = cancellation.Request(why);
    const std::shared_ptr<StartedRequest> self = shared_from_this();
    if (waits_for_rows_.exchange(false)) {
      // The kernel may still write into the memory of the rows, which is kept until it has done so.
      batcher_.EndPostponed();
      Fail(why);
      return true;
    }
    // Not `id`, which is written after a thread that watches deadlines has found the request.
    if (BatchEntry* const waiting = batcher_.Remove(number())) {
      waiting->Fail(why);
      return true;
    }
    if (!async_work_->may_end_early) return first;
    if (!TakeEnd()) return false;
    async_work_->timing.total_ns = NowNs() - start_ns();
    parts_.RecordRefusal(why, start_ns());
    async_work_->Done(why);
    return true;
  }

 private:
  void RowsCame() noexcept {
    const OutsideCalls::Scope call(calls_);
    if (!waits_for_rows_.exchange(false)) return;  // it was stopped meanwhile
    batcher_.Resume(this);
    // A request that was stopped before it was listed must not wait in the list.
    if (cancellation.requested()) {
      if (BatchEntry* const waiting = batcher_.Remove(id)) waiting->Fail(cancellation.why());
    }
  }

  // `end`: the status to report; null if the end has been reported.
  void Leave(const absl::Status* end) noexcept {
    const std::shared_ptr<StartedRequest> self = std::move(self_);
    parts_.watch.Remove(this);
    // The caller may free the model inside Done(), and freeing waits for gate.Leave(): release all that belongs to it.
    outputs.clear();
    request.Clear();
    early.reset();
    version.reset();
    if (end != nullptr) async_work_->Done(*end);
    async_work_.reset();
    parts_.gate.Leave();
  }

  std::shared_ptr<AsyncWork> async_work_;
  std::shared_ptr<StartedRequest> self_;
  const std::shared_ptr<OutsideCalls> calls_ = parts_.outside_calls;
  std::atomic<bool> waits_for_rows_{false};  // whoever sets it to false decides what becomes of the request
};

// Lets a thread of a slot serve the batcher.
class BatchedRequests::ServeTask : public Task {
 public:
  ServeTask(Batcher* batcher, int session) : batcher_(batcher), session_(session) {}
  void Run(int session) noexcept override { batcher_->Serve(session); }
  void Fail(const absl::Status&) noexcept override { batcher_->ReturnPlace(session_); }

 private:
  Batcher* const batcher_;
  const int session_;
};

BatchedRequests::BatchedRequests(ModelParts* parts)
    : parts_(*parts),
      places_(int64_t{parts->config.session_num} * std::max(parts->config.worker_threads, 1)),
      batcher_(BatcherSetup()) {
  for (int session = 0; session < parts_.slots.size(); ++session) {
    serve_tasks_.push_back(std::make_shared<ServeTask>(&batcher_, session));
  }
  batcher_.SetOptions(parts_.config.batching);
}

Batcher::Setup BatchedRequests::BatcherSetup() {
  const ModelConfig& config = parts_.config;
  Batcher::Setup setup;
  setup.sessions = config.session_num;
  setup.places = std::max(config.worker_threads, 1);
  setup.max_waiting = static_cast<size_t>(config.max_queue_size) * static_cast<size_t>(config.session_num);
  const int places = setup.sessions * setup.places;
  setup.by_cpu = places > 1 && places >= static_cast<int>(AllowedCpus().size());
  setup.run = [this](int session, BatchEntry* first) { RunChain(session, first); };
  setup.call_worker = [this](int session) {
    return Attempt([&] { return parts_.slots[session].Serve(serve_tasks_[session]); });
  };
  return setup;
}

absl::Status BatchedRequests::Run(Work& work, int session) {
  WaitedRequest request(this, &work);
  absl::Status status;
  if (parts_.versions.current()->reads_early()) {
    status = request.Prepare();
    if (status.ok()) status = Attempt([&] { return request.WaitForRows(); });
  }
  if (status.ok()) status = batcher_.Run(request, session);
  if (status.ok()) return request.status;
  parts_.RecordRefusal(status, request.start_ns());
  return status;
}

absl::Status BatchedRequests::Start(Admission& admission, std::shared_ptr<AsyncWork> work, int session, uint64_t* id) {
  if (IsPast(work->deadline_us)) return DeadlinePassed();
  const auto request = std::make_shared<StartedRequest>(this, std::move(work));
  request->Watch(request);
  if (id != nullptr) *id = request->id;
  if (absl::Status s = batcher_.Start(request.get(), session); !s.ok()) {
    return request->Unwatch() ? s : absl::OkStatus();
  }
  admission.HandOver();
  // The request is accepted, so nothing may fail from here on: its end will be reported. A request that was stopped
  // before it was listed must not wait in the list.
  if (request->cancellation.requested()) {
    if (BatchEntry* const waiting = batcher_.Remove(request->number())) waiting->Fail(request->cancellation.why());
  }
  return absl::OkStatus();
}

void BatchedRequests::RunChain(int session, BatchEntry* first) noexcept {
  const absl::Status status = Attempt([&] { return RunChainOrThrow(session, first), absl::OkStatus(); });
  if (status.ok()) return;
  for (BatchEntry* entry = first; entry != nullptr; entry = entry->next()) {
    auto* const request = static_cast<Request*>(entry);
    request->timing.session = session;
    request->status = status;
  }
}

void BatchedRequests::RunChainOrThrow(int session, BatchEntry* first) {
  const int64_t start_ns = NowNs();
  const std::shared_ptr<ModelVersion>& version = static_cast<Request*>(first)->version;
  std::vector<Request*> members;
  for (BatchEntry* entry = first; entry != nullptr; entry = entry->next()) {
    auto* const request = static_cast<Request*>(entry);
    request->timing.session = session;
    request->timing.queue_ns = start_ns - request->start_ns() - request->timing.decode_ns;
    request->TakeRows();
    if (request->deadline_us != 0 && start_ns / 1000 >= request->deadline_us) {
      request->status = DeadlinePassed();
    } else if (request->cancellation.requested()) {
      request->status = request->cancellation.why();
    } else if (request->version != version) {
      // The kinds of requests of two versions may be equal by chance.
      const Cancellation::Scope scope(&request->cancellation);
      const EarlyRows* const early = request->early.get();
      const EarlyRowsScope early_scope(EarlyRowsList(&early, early == nullptr ? 0 : 1));
      const PinnedEpoch epoch = request->version->Pin();
      request->SetEpoch(epoch);
      request->status = request->version->Run(session, request->request, epoch, &request->outputs, &parts_.timeline);
    } else {
      members.push_back(request);
    }
  }
  if (!members.empty()) RunBatch(session, start_ns, members);
}

// Runs requests that were decoded for the same version. `start_ns`: when the run of their chain began.
void BatchedRequests::RunBatch(int session, int64_t start_ns, const std::vector<Request*>& members) {
  ModelVersion& version = *members.front()->version;
  const PinnedEpoch epoch = version.Pin();
  std::vector<JointRequest> requests;
  std::vector<const EarlyRows*> early;
  int64_t rows = 0;
  for (Request* member : members) {
    member->SetEpoch(epoch);
    if (member->early != nullptr) early.push_back(member->early.get());
    requests.push_back({&member->request, member->rows, {}, absl::OkStatus()});
    rows += member->rows;
  }
  const auto run_for = [&](Cancellation& cancellation, const DecodedRequest& request,
                           std::vector<tensorflow::Tensor>* outputs) {
    const Cancellation::Scope scope(&cancellation);
    const EarlyRowsScope early_scope(early);
    return version.Run(session, request, epoch, outputs, &parts_.timeline);
  };
  const RunRequest run = [&](const DecodedRequest& request, std::vector<tensorflow::Tensor>* outputs) {
    std::vector<Cancellation*> cancellations;
    for (Request* member : members) {
      if (&member->request == &request) return run_for(member->cancellation, request, outputs);
      cancellations.push_back(&member->cancellation);
    }
    JointCancellation joint(cancellations);
    return run_for(joint.all(), request, outputs);
  };
  std::atomic<int>& load = parts_.slots[session].load();
  load.fetch_add(static_cast<int>(members.size()), std::memory_order_relaxed);
  const JointOutcome outcome = RunTogether(run, &version.output_rows, &requests);
  load.fetch_sub(static_cast<int>(members.size()), std::memory_order_relaxed);
  const int64_t run_ns = NowNs() - start_ns;
  for (size_t i = 0; i < members.size(); ++i) {
    members[i]->outputs = std::move(requests[i].outputs);
    members[i]->status = std::move(requests[i].status);
    members[i]->timing.run_ns = run_ns;
    if (outcome.together) members[i]->timing.batch_rows = rows;
  }
  if (outcome.together) {
    stats_.Record(rows, static_cast<int64_t>(members.size()));
  } else {
    for (const Request* member : members) stats_.Record(member->rows, 1);
    if (outcome.repeated) stats_.repeated.fetch_add(1, std::memory_order_relaxed);
  }
}

}  // namespace processor
