// SPDX-License-Identifier: Apache-2.0
// TensorFlow's default executor with steps that can be canceled, for graphs that our own executor refuses.
#ifndef PROCESSOR_RUNTIME_EXECUTOR_CANCELLABLE_EXECUTOR_H_
#define PROCESSOR_RUNTIME_EXECUTOR_CANCELLABLE_EXECUTOR_H_

namespace processor {

/// Registers the executor with TensorFlow at the first call, and returns its name.
///
/// `has_pool`: a step runs on the thread that waits for it and on those of the session's pool; else on that thread
/// alone.
const char* CancellableExecutorType(bool has_pool);

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_EXECUTOR_CANCELLABLE_EXECUTOR_H_
