// SPDX-License-Identifier: Apache-2.0
// How a model runs one request: on the thread that brings it, or from the queue of a session.
#include <condition_variable>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/runtime/model/model.h"
#include "src/runtime/model/model_admission.h"
#include "src/runtime/requests/deadline.h"
#include "src/runtime/requests/exception_status.h"

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

// A request that runs on the thread of its caller, who can only be answered once its work has stopped.
class Model::InlineCall : public Call {
 public:
  InlineCall(RequestWatch* watch, const Work& work) : watch_(watch) { watch_->Add(this, work.deadline_us); }
  ~InlineCall() override { watch_->Remove(this); }
  bool Stop(const absl::Status& why) noexcept override { return cancellation.Request(why); }

 private:
  RequestWatch* const watch_;
};

// A request in the queue of a slot. It is admitted while it exists: whichever of Run() and Fail() ends it leaves.
class Model::SlotTask : public Task, public Call {
 public:
  SlotTask(Model* model, std::shared_ptr<AsyncWork> work, SessionSlot* slot, int session)
      : model_(model), work_(std::move(work)), slot_(slot), session_(session), start_ns_(NowNs()) {
    priority = work_->priority;
  }

  void Watch() noexcept {
    model_->watch_.Add(this, work_->caller_keeps_deadline ? 0 : work_->deadline_us);
    id = number();
  }

  /// Takes it out again: it was not queued.
  /// \return whether nobody has heard of its end, and will.
  bool Unwatch() noexcept {
    model_->watch_.Remove(this);
    return TakeEnd();
  }

  void Run(int session) noexcept override {
    const int64_t begin_ns = NowNs();
    begin_ns_.store(begin_ns, std::memory_order_relaxed);
    timing.queue_ns = begin_ns - start_ns_;
    const absl::Status status = model_->Execute(session, *work_, *this);
    if (!KeepEnd()) return Leave(nullptr);
    work_->timing = timing;
    Leave(&status);
  }

  void Fail(const absl::Status& status) noexcept override {
    if (!TakeEnd()) return Leave(nullptr);
    work_->timing.queue_ns = NowNs() - start_ns_;
    model_->RecordRefusal(status, start_ns_);
    Leave(&status);
  }

  bool Stop(const absl::Status& why) noexcept override {
    const bool first = cancellation.Request(why);
    if (const std::shared_ptr<Task> waiting = slot_->Remove(id)) {
      waiting->Fail(why);
      return true;
    }
    // It runs, or is about to. What it reads and writes is its own, so that its caller need not wait until it stops.
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
  // `status`: to be told; null: it has been.
  void Leave(const absl::Status* status) noexcept {
    slot_->load().fetch_sub(1, std::memory_order_relaxed);
    model_->watch_.Remove(this);
    // The caller may free the model as soon as it has heard, which waits for Leave().
    if (status != nullptr) work_->Done(*status);
    work_.reset();
    model_->Leave();
  }

  Model* const model_;
  std::shared_ptr<AsyncWork> work_;
  SessionSlot* const slot_;
  const int session_;
  const int64_t start_ns_;
  std::atomic<int64_t> begin_ns_{0};
};

absl::Status Model::Execute(int session, Work& work, Call& call) noexcept {
  // Threads of a slot have no boundary above them that would catch.
  return Attempt([&] { return ExecuteOrThrow(session, work, call); });
}

absl::Status Model::ExecuteOrThrow(int session, Work& work, Call& call) {
  RequestTiming& timing = call.timing;
  const int64_t start_ns = NowNs();
  timing.session = session;
  const std::shared_ptr<ModelVersion> version = this->version();
  timing.model_version = version->source().number.value_or(-1);
  timing.generation = version->generation;

  DecodedRequest request;
  std::vector<tensorflow::Tensor> outputs;
  absl::Status status = IsPast(work.deadline_us) ? DeadlinePassed() : call.cancellation.why();
  if (status.ok()) status = work.Decode(*version, &request);
  if (status.ok()) status = CheckModelSpec(*version, request);
  const int64_t decoded_ns = NowNs();
  timing.decode_ns = decoded_ns - start_ns;
  if (status.ok()) {
    {
      const Cancellation::Scope scope(&call.cancellation);
      status = RunOnVersion(*version, session, request, &outputs);
    }
    const int64_t ran_ns = NowNs();
    timing.run_ns = ran_ns - decoded_ns;
    // An answer that comes too late is none.
    if (call.cancellation.requested()) status = call.cancellation.why();
    if (!call.KeepEnd()) return status;
    if (status.ok()) status = work.Encode(*version, request, outputs);
    timing.encode_ns = NowNs() - ran_ns;
  }
  if (!call.KeepEnd()) return status;
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
      // What runs already stops at its next kernel, and is waited for: it uses what the caller lent. So does an exception
      // not end the waiting.
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
  InlineCall call(&watch_, work);
  const absl::Status status = Execute(session, work, call);
  work.timing = call.timing;
  return status;
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

absl::Status Model::StartAdmitted(Admission& admission, std::shared_ptr<AsyncWork> work, int session, uint64_t* id) {
  if (IsPast(work->deadline_us)) return DeadlinePassed();
  SessionSlot& slot = *slots_[session];
  const auto task = std::make_shared<SlotTask>(this, std::move(work), &slot, session);
  admission.Enter(&slot);
  task->Watch();
  // Before it is queued: it may have ended when Submit() returns.
  if (id != nullptr) *id = task->number();
  if (absl::Status s = Attempt([&] { return slot.Submit(task); }); !s.ok()) {
    return task->Unwatch() ? s : absl::OkStatus();
  }
  admission.HandOver();
  // Accepted: nothing from here on may fail, for the work will hear of its end. Who was stopped before it was in the queue
  // is not to wait there.
  if (task->cancellation.requested()) {
    if (const std::shared_ptr<Task> waiting = slot.Remove(task->id)) waiting->Fail(task->cancellation.why());
  }
  return absl::OkStatus();
}

absl::Status Model::Cancel(uint64_t id, const absl::Status& status) {
  if (watch_.Stop(id, status)) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("request ", id, ": not in flight"));
}

}  // namespace processor
