// SPDX-License-Identifier: Apache-2.0
// Tells a kernel, between blocks of rows, whether its result is still wanted.
#ifndef PROCESSOR_KERNELS_INTERRUPTION_H_
#define PROCESSOR_KERNELS_INTERRUPTION_H_

#include "absl/status/status.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace processor {

/// The cancellation of the step in which a kernel runs; the step outlives it. Any thread may call its functions.
class Interruption {
 public:
  explicit Interruption(tensorflow::OpKernelContext* context) : manager_(context->cancellation_manager()) {}

  bool requested() const { return manager_ != nullptr && manager_->IsCancelled(); }
  /// Returns CANCELLED if the step was cancelled; then the output must not be used.
  absl::Status status() const {
    return requested() ? absl::CancelledError("kernel: stopped between two blocks of rows") : absl::OkStatus();
  }

 private:
  tensorflow::CancellationManager* const manager_;  // may be null
};

}  // namespace processor

#endif  // PROCESSOR_KERNELS_INTERRUPTION_H_
