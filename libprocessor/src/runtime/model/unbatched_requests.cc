// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/model/unbatched_requests.h"

#include <atomic>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "src/runtime/requests/deadline.h"
#include "src/runtime/requests/exception_status.h"

namespace processor {

// Borrows the lists of a request, and empties them at the end of the scope.
class UnbatchedRequests::Lent {
 public:
  explicit Lent(KeptObjects<Tensors>* owner) : owner_(*owner), tensors_(owner->Take()) {}
  ~Lent() {
    tensors_->request.Clear();
    tensors_->outputs.clear();
    owner_.Keep(std::move(tensors_));
  }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;

  Tensors& operator*() { return *tensors_; }
  Tensors* operator->() { return tensors_.get(); }

 private:
  KeptObjects<Tensors>& owner_;
  std::unique_ptr<Tensors> tensors_;
};

// What a request has after it was read.
struct UnbatchedRequests::Running {
  void Clear() {
    lent.reset();
    early.reset();
    version.reset();
  }

  std::shared_ptr<ModelVersion> version;
  std::optional<Lent> lent;
  std::shared_ptr<EarlyRows> early;  // null if nothing was read before it runs
};

// A request that runs on the thread of its caller, so it ends only when its work has stopped.
class UnbatchedRequests::InlineCall : public RequestCall {
 public:
  InlineCall(RequestWatch* watch, const Work& work) : watch_(watch) { watch_->Add(this, work.deadline_us); }
  ~InlineCall() override { watch_->Remove(this); }
  bool Stop(const absl::Status& why) noexcept override { return cancellation.Request(why); }

 private:
  RequestWatch* const watch_;
};

// A request in the queue of a slot. It is admitted while it exists; Run() or Fail() ends it and leaves the gate.
class UnbatchedRequests::SlotTask : public Task, public RequestCall, public std::enable_shared_from_this<SlotTask> {
 public:
  SlotTask(UnbatchedRequests* requests, std::shared_ptr<AsyncWork> work, int session)
      : requests_(*requests),
        parts_(requests->parts_),
        work_(std::move(work)),
        slot_(&parts_.slots[session]),
        session_(session),
        start_ns_(NowNs()) {
    priority = work_->priority;
  }

  void Watch() noexcept {
    parts_.watch.Add(this, work_->caller_keeps_deadline ? 0 : work_->deadline_us);
    id = number();
  }

  /// Removes the request from the watch, because it was not queued.
  /// \return whether its end is still to be reported.
  bool Unwatch() noexcept {
    parts_.watch.Remove(this);
    return TakeEnd();
  }

  // Called once; or twice if the request waits for rows after it has been read.
  void Run(int session) noexcept override {
    const int64_t begin_ns = NowNs();
    begin_ns_.store(begin_ns, std::memory_order_relaxed);
    absl::Status status;
    if (running_.version == nullptr) {
      timing.queue_ns = begin_ns - start_ns_;
      status = requests_.Read(session, *work_, *this, &running_);
      if (status.ok() && WaitForRows()) return;
    } else {
      timing.queue_ns = begin_ns - start_ns_ - timing.decode_ns;
      if (running_.early != nullptr) running_.early->Take();
      if (IsPast(work_->deadline_us)) status = DeadlinePassed();
      if (cancellation.requested()) status = cancellation.why();
    }
    status = requests_.Execute(std::move(status), *work_, *this, &running_);
    if (!KeepEnd()) return Leave(nullptr);
    work_->timing = timing;
    Leave(&status);
  }

  void Fail(const absl::Status& status) noexcept override {
    if (!TakeEnd()) return Leave(nullptr);
    work_->timing.queue_ns = NowNs() - start_ns_;
    parts_.RecordRefusal(status, start_ns_);
    Leave(&status);
  }

  bool Stop(const absl::Status& why) noexcept override {
    const bool first = cancellation.Request(why);
    const std::shared_ptr<SlotTask> self = shared_from_this();
    if (waits_for_rows_.exchange(false)) {
      // The kernel may still write into the memory of the rows, which is kept until it has done so.
      Fail(why);
      return true;
    }
    // Not `id`, which is written after a thread that watches deadlines has found the request.
    if (const std::shared_ptr<Task> waiting = slot_->Remove(number())) {
      waiting->Fail(why);
      return true;
    }
    // The request runs or is about to. It owns its inputs and outputs, so the caller need not wait until it stops.
    if (!work_->may_end_early) return first;
    if (!TakeEnd()) return false;
    const int64_t now_ns = NowNs(), begin_ns = begin_ns_.load(std::memory_order_relaxed);
    RequestTiming& told = work_->timing;
    told.session = session_;
    told.total_ns = now_ns - start_ns_;
    told.run_ns = begin_ns == 0 ? 0 : now_ns - begin_ns;
    told.queue_ns = told.total_ns - told.run_ns;
    slot_->stats().Record(why.code(), told);
    work_->Done(why);
    return true;
  }

 private:
  // Starts to read rows of tiered tables that are not in memory, and returns the thread: the request is queued again when
  // they have come. While another place is left, the op reads them sooner.
  // \return whether there are any. Then the request may have ended.
  bool WaitForRows() noexcept {
    if (!running_.version->reads_early()) return false;
    if (slot_->load().load(std::memory_order_relaxed) < static_cast<int>(slot_->places())) return false;
    std::function<void()> came;
    const absl::Status prepared = Attempt([&] {
      running_.early = running_.version->RowsToRead((*running_.lent)->request);
      if (running_.early != nullptr) came = [self = shared_from_this()] { self->RowsCame(); };
      return absl::OkStatus();
    });
    if (!prepared.ok()) running_.early = nullptr;
    const std::shared_ptr<EarlyRows> early = running_.early;
    if (early == nullptr) return false;
    begin_ns_.store(0, std::memory_order_relaxed);
    waits_for_rows_.store(true);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    // From here on, a thread that stops the request may end it. One that was stopped before ends here.
    if (cancellation.requested()) return !waits_for_rows_.exchange(false);
    EarlyRows::Start(early, std::move(came));
    return true;
  }

  void RowsCame() noexcept {
    const OutsideCalls::Scope call(calls_);
    if (!waits_for_rows_.exchange(false)) return;  // it was stopped meanwhile
    const absl::Status status = Attempt([&] { return slot_->Resume(shared_from_this()); });
    if (!status.ok()) return Fail(status);
    // A request that was stopped before it was queued must not wait in the queue.
    if (cancellation.requested()) {
      if (const std::shared_ptr<Task> waiting = slot_->Remove(id)) waiting->Fail(cancellation.why());
    }
  }

  // `status`: the status to report; null if the end has been reported.
  void Leave(const absl::Status* status) noexcept {
    running_.Clear();
    slot_->load().fetch_sub(1, std::memory_order_relaxed);
    parts_.watch.Remove(this);
    // The caller may free the model inside Done(), and freeing waits for gate.Leave().
    if (status != nullptr) work_->Done(*status);
    work_.reset();
    parts_.gate.Leave();
  }

  UnbatchedRequests& requests_;
  ModelParts& parts_;
  std::shared_ptr<AsyncWork> work_;
  SessionSlot* const slot_;
  const int session_;
  const int64_t start_ns_;
  std::atomic<int64_t> begin_ns_{0};
  Running running_;
  const std::shared_ptr<OutsideCalls> calls_ = parts_.outside_calls;
  std::atomic<bool> waits_for_rows_{false};  // whoever sets it to false decides what becomes of the request
};

absl::Status UnbatchedRequests::Read(int session, Work& work, RequestCall& call, Running* running) noexcept {
  return Attempt([&]() -> absl::Status {
    RequestTiming& timing = call.timing;
    const int64_t begin_ns = NowNs();
    timing.session = session;
    running->version = parts_.versions.current();
    const ModelVersion& version = *running->version;
    timing.model_version = version.source().number.value_or(-1);
    timing.generation = version.generation;
    DecodedRequest& request = (*running->lent.emplace(&tensors_)).request;
    absl::Status status;
    if (IsPast(work.deadline_us)) {
      status = DeadlinePassed();
    } else if (call.cancellation.requested()) {
      status = call.cancellation.why();
    }
    if (status.ok()) status = work.Decode(version, &request);
    if (status.ok()) status = parts_.CheckNames(version, request);
    timing.decode_ns = NowNs() - begin_ns;
    return status;
  });
}

// Runs what was read, and writes the response. `status`: of Read().
absl::Status UnbatchedRequests::Execute(absl::Status status, Work& work, RequestCall& call, Running* running) noexcept {
  return Attempt([&]() -> absl::Status {
    RequestTiming& timing = call.timing;
    const int64_t begin_ns = NowNs();
    int64_t end_ns = begin_ns;
    if (status.ok()) {
      auto& [request, outputs] = **running->lent;
      {
        const Cancellation::Scope scope(&call.cancellation);
        const EarlyRows* const early = running->early.get();
        const EarlyRowsScope early_scope(EarlyRowsList(&early, early == nullptr ? 0 : 1));
        const PinnedEpoch epoch = running->version->Pin();
        call.SetEpoch(epoch);
        status = running->version->Run(timing.session, request, epoch, &outputs, &parts_.timeline);
      }
      const int64_t ran_ns = NowNs();
      timing.run_ns = ran_ns - begin_ns;
      // A response after a cancellation or the deadline is discarded.
      if (call.cancellation.requested()) status = call.cancellation.why();
      if (!call.KeepEnd()) return status;
      if (status.ok()) status = work.Encode(*running->version, request, outputs);
      end_ns = NowNs();
      timing.encode_ns = end_ns - ran_ns;
    }
    if (!call.KeepEnd()) return status;
    timing.total_ns = timing.queue_ns + timing.decode_ns + (end_ns - begin_ns);
    parts_.slots[timing.session].stats().Record(status.code(), timing);
    return status;
  });
}

absl::Status UnbatchedRequests::Run(Admission& admission, Work& work, int session) {
  admission.Enter(&parts_.slots[session]);
  InlineCall call(&parts_.watch, work);
  Running running;
  absl::Status read = Read(session, work, call, &running);
  // Where rows have to come from the device, this thread waits in the lookup op: it is the caller's, and takes no place.
  const absl::Status status = Execute(std::move(read), work, call, &running);
  work.timing = call.timing;
  return status;
}

absl::Status UnbatchedRequests::Start(Admission& admission, std::shared_ptr<AsyncWork> work, int session,
                                      uint64_t* id) {
  if (IsPast(work->deadline_us)) return DeadlinePassed();
  SessionSlot& slot = parts_.slots[session];
  const auto task = std::make_shared<SlotTask>(this, std::move(work), session);
  admission.Enter(&slot);
  task->Watch();
  // The number is written before Submit(), because the request may have ended when Submit() returns.
  if (id != nullptr) *id = task->number();
  if (absl::Status s = Attempt([&] { return slot.Submit(task); }); !s.ok()) {
    return task->Unwatch() ? s : absl::OkStatus();
  }
  admission.HandOver();
  // The request is accepted, so nothing may fail from here on: its end will be reported. A request that was stopped
  // before it was queued must not wait in the queue.
  if (task->cancellation.requested()) {
    if (const std::shared_ptr<Task> waiting = slot.Remove(task->id)) waiting->Fail(task->cancellation.why());
  }
  return absl::OkStatus();
}

}  // namespace processor
