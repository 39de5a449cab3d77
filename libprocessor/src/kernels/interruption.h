// SPDX-License-Identifier: Apache-2.0
// Whether anybody still waits for what a kernel computes: to be asked between blocks of rows.
#ifndef PROCESSOR_KERNELS_INTERRUPTION_H_
#define PROCESSOR_KERNELS_INTERRUPTION_H_

#include "absl/status/status.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace processor {

/// Of the step that a kernel runs in. Any thread may ask.
class Interruption {
 public:
  explicit Interruption(tensorflow::OpKernelContext* context) : manager_(context->cancellation_manager()) {}

  bool requested() const { return manager_ != nullptr && manager_->IsCancelled(); }
  /// CANCELLED if it is requested: what has been written then is not to be used.
  absl::Status status() const {
    return requested() ? absl::CancelledError("kernel: stopped between two blocks of rows") : absl::OkStatus();
  }

 private:
  tensorflow::CancellationManager* const manager_;  // may be null
};

}  // namespace processor

#endif  // PROCESSOR_KERNELS_INTERRUPTION_H_
