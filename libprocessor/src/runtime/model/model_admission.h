// SPDX-License-Identifier: Apache-2.0
// Of the model: how long a request counts as one that is in flight, and what is known of it meanwhile.
#ifndef PROCESSOR_RUNTIME_MODEL_MODEL_ADMISSION_H_
#define PROCESSOR_RUNTIME_MODEL_MODEL_ADMISSION_H_

#include "src/runtime/model/model.h"

namespace processor {

/// Keeps a request that Admit() let in counted, also in the load of the slot that it has entered, until it is handed to
/// a task or the scope ends.
class Model::Admission {
 public:
  explicit Admission(Model* model) : model_(model) {}
  Admission(const Admission&) = delete;
  Admission& operator=(const Admission&) = delete;
  ~Admission() {
    if (slot_ != nullptr) slot_->load().fetch_sub(1, std::memory_order_relaxed);
    if (model_ != nullptr) model_->Leave();
  }

  void Enter(SessionSlot* slot) {
    slot_ = slot;
    slot_->load().fetch_add(1, std::memory_order_relaxed);
  }
  /// From here on the task sees to it.
  void HandOver() {
    slot_ = nullptr;
    model_ = nullptr;
  }

 private:
  Model* model_;
  SessionSlot* slot_ = nullptr;
};

/// A request while it is in flight: what stops it, how it went so far, and whether its end has been told. That is told by
/// the thread that runs it, or earlier by whoever stops it.
class Model::Call : public RequestWatch::Entry {
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

#endif  // PROCESSOR_RUNTIME_MODEL_MODEL_ADMISSION_H_
