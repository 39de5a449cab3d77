// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/model/unbatched_requests.h"

#include <atomic>
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

 private:
  KeptObjects<Tensors>& owner_;
  std::unique_ptr<Tensors> tensors_;
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
class UnbatchedRequests::SlotTask : public Task, public RequestCall {
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

  void Run(int session) noexcept override {
    const int64_t begin_ns = NowNs();
    begin_ns_.store(begin_ns, std::memory_order_relaxed);
    timing.queue_ns = begin_ns - start_ns_;
    const absl::Status status = requests_.Execute(session, *work_, *this);
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
    if (const std::shared_ptr<Task> waiting = slot_->Remove(id)) {
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
  // `status`: the status to report; null if the end has been reported.
  void Leave(const absl::Status* status) noexcept {
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
};

// Catches exceptions, because nothing above a slot's thread would.
absl::Status UnbatchedRequests::Execute(int session, Work& work, RequestCall& call) noexcept {
  return Attempt([&]() -> absl::Status {
    RequestTiming& timing = call.timing;
    const int64_t start_ns = NowNs();
    timing.session = session;
    const std::shared_ptr<ModelVersion> version = parts_.versions.current();
    timing.model_version = version->source().number.value_or(-1);
    timing.generation = version->generation;

    Lent lent(&tensors_);
    auto& [request, outputs] = *lent;
    absl::Status status;
    if (IsPast(work.deadline_us)) {
      status = DeadlinePassed();
    } else if (call.cancellation.requested()) {
      status = call.cancellation.why();
    }
    if (status.ok()) status = work.Decode(*version, &request);
    if (status.ok()) status = parts_.CheckNames(*version, request);
    const int64_t decoded_ns = NowNs();
    timing.decode_ns = decoded_ns - start_ns;
    if (status.ok()) {
      {
        const Cancellation::Scope scope(&call.cancellation);
        const PinnedEpoch epoch = version->Pin();
        call.SetEpoch(epoch);
        status = version->Run(session, request, epoch, &outputs, &parts_.timeline);
      }
      const int64_t ran_ns = NowNs();
      timing.run_ns = ran_ns - decoded_ns;
      // A response after a cancellation or the deadline is discarded.
      if (call.cancellation.requested()) status = call.cancellation.why();
      if (!call.KeepEnd()) return status;
      if (status.ok()) status = work.Encode(*version, request, outputs);
      timing.encode_ns = NowNs() - ran_ns;
    }
    if (!call.KeepEnd()) return status;
    timing.total_ns = NowNs() - start_ns + timing.queue_ns;
    parts_.slots[session].stats().Record(status.code(), timing);
    return status;
  });
}

absl::Status UnbatchedRequests::Run(Admission& admission, Work& work, int session) {
  admission.Enter(&parts_.slots[session]);
  InlineCall call(&parts_.watch, work);
  const absl::Status status = Execute(session, work, call);
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
