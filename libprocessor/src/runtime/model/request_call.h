// SPDX-License-Identifier: Apache-2.0
// What the runtime keeps of a request while it is inside a model. The thread or task that runs the request owns it.
#ifndef PROCESSOR_RUNTIME_MODEL_REQUEST_CALL_H_
#define PROCESSOR_RUNTIME_MODEL_REQUEST_CALL_H_

#include <atomic>

#include "src/runtime/requests/cancellation.h"
#include "src/runtime/requests/request_gate.h"
#include "src/runtime/requests/request_watch.h"
#include "src/runtime/session/session_slot.h"
#include "src/runtime/stats/stats.h"

namespace processor {

/// Lets an admitted request out of the gate, and out of the load of the slot that it has entered, when the scope ends,
/// unless it has been handed over to a task.
class Admission {
 public:
  explicit Admission(RequestGate* gate) : gate_(gate) {}
  Admission(const Admission&) = delete;
  Admission& operator=(const Admission&) = delete;
  ~Admission() {
    if (slot_ != nullptr) slot_->load().fetch_sub(1, std::memory_order_relaxed);
    if (gate_ != nullptr) gate_->Leave();
  }

  void Enter(SessionSlot* slot) {
    slot_ = slot;
    slot_->load().fetch_add(1, std::memory_order_relaxed);
  }
  /// From here on a task lets the request out.
  void HandOver() {
    slot_ = nullptr;
    gate_ = nullptr;
  }

 private:
  RequestGate* gate_;
  SessionSlot* slot_ = nullptr;
};

/// What stops a request, how it has gone so far, and whether its end has been told. The thread that runs it tells its end,
/// or whoever stops it does so earlier.
class RequestCall : public RequestWatch::Entry {
 public:
  /// Whether the end is the caller's to tell: for one thread, once.
  bool TakeEnd() noexcept { return !end_taken_.exchange(true); }
  /// As TakeEnd(), for the thread that runs it: what it has taken stays its own.
  bool KeepEnd() noexcept { return kept_ || (kept_ = TakeEnd()); }

  Cancellation cancellation;
  /// Of the thread that runs it. The timing of the work is written with its end.
  RequestTiming timing;

 private:
  std::atomic<bool> end_taken_{false};
  bool kept_ = false;
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_MODEL_REQUEST_CALL_H_
