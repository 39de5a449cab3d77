// SPDX-License-Identifier: Apache-2.0
// Handles of models that outlive their models: a host that calls process() on a handle that another thread has just
// freed gets a status, not a crash.
#ifndef PROCESSOR_C_API_HANDLE_H_
#define PROCESSOR_C_API_HANDLE_H_

#include <atomic>
#include <memory>

#include "absl/status/status.h"
#include "processor/processor.h"
#include "src/base/published.h"
#include "src/runtime/model/model.h"

/// Thousands of handles are kept after their models were freed, so a handle is small: what threads read without a lock is
/// in a place that the next model uses again.
struct processor_model {
  std::atomic<processor::Published<processor::Model> *> place{nullptr};  // null once freed; never deleted
  std::atomic<int> batch_count{1};  // responses that a host makes room for; kept after the model is freed
};

namespace processor {

/// Makes a handle for a model, which it owns until FreeHandle().
processor_model *MakeHandle(std::shared_ptr<Model> model);

/// Finds the model of a handle.
/// \return INVALID_ARGUMENT for NULL, FAILED_PRECONDITION for a handle that has been freed.
absl::Status GetModel(const processor_model *handle, std::shared_ptr<Model> *model);

/// Returns how many requests batch_process() takes on a handle, also after that has been freed; 1 for NULL.
size_t BatchCount(const processor_model *handle) noexcept;

/// Closes the model of a handle; does nothing if it has been closed.
void FreeHandle(processor_model *handle);

}  // namespace processor

#endif  // PROCESSOR_C_API_HANDLE_H_
