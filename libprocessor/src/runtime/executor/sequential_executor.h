// SPDX-License-Identifier: Apache-2.0
// A TensorFlow executor that runs a graph's kernels one after another on the calling thread. The session owns it.
//
// TensorFlow has one (SINGLE_THREADED_EXECUTOR). In graphs of thousands of small ops most of its time goes into waiting
// for memory: the state of a kernel was last touched a request ago. This one keeps its own state dense, fetches the
// kernels that come next while one runs, and treats variables as constants if they never change after loading.
//
// Like TensorFlow's, it refuses control flow and reference edges. It also refuses ops that wait for others of their graph.
#ifndef PROCESSOR_RUNTIME_EXECUTOR_SEQUENTIAL_EXECUTOR_H_
#define PROCESSOR_RUNTIME_EXECUTOR_SEQUENTIAL_EXECUTOR_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "tensorflow/core/common_runtime/executor.h"
#include "tensorflow/core/common_runtime/local_executor_params.h"
#include "tensorflow/core/graph/graph.h"

namespace processor {

/// Returns OK if the executor can run a graph.
/// \return UNIMPLEMENTED with the node that it refuses.
absl::Status CheckSequential(const tensorflow::Graph& graph);

/// Makes the executor of a graph that CheckSequential() permits. `type`: the name of the executors of functions that the
/// graph calls; must live as long as the process.
absl::Status NewSequentialExecutor(const tensorflow::LocalExecutorParams& params, const tensorflow::Graph& graph,
                                   bool variables_are_constant, const std::string& type,
                                   std::unique_ptr<tensorflow::Executor>* executor);

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_EXECUTOR_SEQUENTIAL_EXECUTOR_H_
