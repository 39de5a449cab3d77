// SPDX-License-Identifier: Apache-2.0
// Passes the Cancellation of a thread on to the step of a graph that an executor runs there. The executor owns it.
#ifndef PROCESSOR_RUNTIME_EXECUTOR_STEP_CANCELLATION_H_
#define PROCESSOR_RUNTIME_EXECUTOR_STEP_CANCELLATION_H_

#include "src/runtime/requests/cancellation.h"
#include "tensorflow/core/framework/cancellation.h"

namespace processor {

/// Lives as long as the step. TensorFlow makes a cancellation manager for each step, which only the executor knows.
/// Connecting it here costs nothing per kernel.
class StepCancellation : private Cancellation::Listener {
 public:
  /// `manager`: that of the step; may be null.
  explicit StepCancellation(tensorflow::CancellationManager* manager)
      : manager_(manager), cancellation_(manager == nullptr ? nullptr : Cancellation::Current()), nested_(nullptr) {
    if (cancellation_ != nullptr && !cancellation_->Listen(this)) manager_->StartCancel();
  }
  ~StepCancellation() override {
    if (cancellation_ != nullptr) cancellation_->Unlisten();
  }
  StepCancellation(const StepCancellation&) = delete;
  StepCancellation& operator=(const StepCancellation&) = delete;

 private:
  void OnCancel() noexcept override { manager_->StartCancel(); }

  tensorflow::CancellationManager* const manager_;
  Cancellation* const cancellation_;
  // Functions that are run on this thread within the step have managers below its own.
  const Cancellation::Scope nested_;
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_EXECUTOR_STEP_CANCELLATION_H_
