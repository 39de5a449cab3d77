// SPDX-License-Identifier: Apache-2.0
// Which executor runs the graph of a callable.
//
// TensorFlow makes executors through a factory, which it finds by a name in the options of a session. The factory here
// chooses for each graph: a signature with a loop does not slow the others.
#ifndef PROCESSOR_RUNTIME_EXECUTOR_EXECUTOR_TYPE_H_
#define PROCESSOR_RUNTIME_EXECUTOR_EXECUTOR_TYPE_H_

#include <string>

#include "src/runtime/config/model_config.h"

namespace processor {

enum class Executor { kSingleThreaded, kDefault };
const char* ExecutorName(Executor executor);

struct ExecutorOptions {
  /// kAuto: the single-threaded executor unless it refuses the graph.
  ExecutorChoice choice = ExecutorChoice::kAuto;
  /// No signature of the model changes a variable, so that each is read once. One graph cannot show that, since it lacks the
  /// other signatures.
  bool variables_are_constant = false;
  /// Steps on the default executor run on the thread that waits for them and on those of the session's pool; else on that
  /// thread alone.
  bool has_pool = false;
};

/// Returns the name for ConfigProto.experimental.executor_type.
const std::string& ExecutorType(const ExecutorOptions& options);

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_EXECUTOR_EXECUTOR_TYPE_H_
