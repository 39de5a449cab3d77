// SPDX-License-Identifier: Apache-2.0
// The state of a request while it is inside a model. The thread or task that runs the request owns it.
#ifndef PROCESSOR_RUNTIME_MODEL_REQUEST_CALL_H_
#define PROCESSOR_RUNTIME_MODEL_REQUEST_CALL_H_

#include <atomic>

#include "src/runtime/requests/cancellation.h"
#include "src/runtime/requests/request_gate.h"
#include "src/runtime/requests/request_watch.h"
#include "src/runtime/session/session_slot.h"
#include "src/runtime/stats/stats.h"
#include "src/runtime/version/pinned_epoch.h"

namespace processor {

/// Ends the admission of a request when the scope ends, unless it was handed over to a task: leaves the gate, and the
/// load of the slot that it has entered.
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
  /// Leaves it to a task to end the admission.
  void HandOver() {
    slot_ = nullptr;
    gate_ = nullptr;
  }

 private:
  RequestGate* gate_;
  SessionSlot* slot_ = nullptr;
};

/// The cancellation and the timing of a request, and whether its end was reported. The thread that runs it reports its
/// end, or a thread that stops it does so earlier.
class RequestCall : public RequestWatch::Entry {
 public:
  /// Whether the calling thread must report the end: true for one thread, once.
  bool TakeEnd() noexcept { return !end_taken_.exchange(true); }
  /// As TakeEnd(), for the thread that runs the request: once true, it stays true.
  bool KeepEnd() noexcept { return kept_ || (kept_ = TakeEnd()); }

  /// Notes the epoch that answers.
  void SetEpoch(const PinnedEpoch& epoch) {
    timing.epoch = epoch.epoch;
    timing.knows_us = epoch.knows_us;
  }

  Cancellation cancellation;
  /// Used by the thread that runs the request. Work::timing is written when the request ends.
  RequestTiming timing;

 private:
  std::atomic<bool> end_taken_{false};
  bool kept_ = false;
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_MODEL_REQUEST_CALL_H_
