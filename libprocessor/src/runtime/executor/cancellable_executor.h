// SPDX-License-Identifier: Apache-2.0
// TensorFlow's default executor, for graphs that our own refuses, such that its steps can be cancelled.
#ifndef PROCESSOR_RUNTIME_EXECUTOR_CANCELLABLE_EXECUTOR_H_
#define PROCESSOR_RUNTIME_EXECUTOR_CANCELLABLE_EXECUTOR_H_

namespace processor {

/// The name that it is registered under with TensorFlow, which this does at the first call.
///
/// `has_pool`: a step runs on the thread that waits for it and on those of the session's pool; else on that thread alone.
const char* CancellableExecutorType(bool has_pool);

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_EXECUTOR_CANCELLABLE_EXECUTOR_H_
