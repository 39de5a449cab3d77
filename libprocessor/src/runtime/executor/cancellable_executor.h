// SPDX-License-Identifier: Apache-2.0
// TensorFlow's default executor with steps that can be canceled, for graphs that our own executor refuses.
#ifndef PROCESSOR_RUNTIME_EXECUTOR_CANCELLABLE_EXECUTOR_H_
#define PROCESSOR_RUNTIME_EXECUTOR_CANCELLABLE_EXECUTOR_H_

#include <memory>

#include "absl/status/status.h"
#include "tensorflow/core/common_runtime/executor.h"
#include "tensorflow/core/common_runtime/local_executor_params.h"
#include "tensorflow/core/graph/graph.h"

namespace processor {

/// `has_pool`: a step runs on the thread that waits for it and on those of the session's pool; else on that thread
/// alone.
absl::Status NewCancellableExecutor(const tensorflow::LocalExecutorParams& params, const tensorflow::Graph& graph,
                                    bool has_pool, std::unique_ptr<tensorflow::Executor>* executor);

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_EXECUTOR_CANCELLABLE_EXECUTOR_H_
