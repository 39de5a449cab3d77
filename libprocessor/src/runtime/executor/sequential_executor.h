// SPDX-License-Identifier: Apache-2.0
// A TensorFlow executor that runs a graph's kernels one after another on the calling thread. The session owns it.
//
// TensorFlow has one (SINGLE_THREADED_EXECUTOR). In graphs of thousands of small ops most of its time goes into waiting
// for memory: the state of a kernel was last touched a request ago. This one keeps its own state dense, fetches the
// kernels that come next while one runs, and treats variables as constants if they never change after loading.
//
// Like TensorFlow's, it refuses control flow and reference edges.
#ifndef PROCESSOR_RUNTIME_EXECUTOR_SEQUENTIAL_EXECUTOR_H_
#define PROCESSOR_RUNTIME_EXECUTOR_SEQUENTIAL_EXECUTOR_H_

namespace processor {

/// Registers the executor at the first call, and returns its name, for ConfigProto.experimental.executor_type.
/// `variables_are_constant`: no signature of the model changes a variable. One graph cannot show that, since it lacks
/// the other signatures.
const char* SequentialExecutorType(bool variables_are_constant);

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_EXECUTOR_SEQUENTIAL_EXECUTOR_H_
