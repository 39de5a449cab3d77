// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/executor/executor_type.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "src/runtime/executor/cancellable_executor.h"
#include "src/runtime/executor/inline_graph.h"
#include "src/runtime/executor/sequential_executor.h"
#include "tensorflow/core/common_runtime/executor.h"
#include "tensorflow/core/common_runtime/executor_factory.h"
#include "tensorflow/core/common_runtime/local_executor_params.h"
#include "tensorflow/core/graph/graph.h"

namespace processor {
namespace {

class GraphExecutorFactory : public tensorflow::ExecutorFactory {
 public:
  GraphExecutorFactory(const ExecutorOptions& options, const std::string& name) : options_(options), name_(name) {}

  absl::Status NewExecutor(const tensorflow::LocalExecutorParams& params, const tensorflow::Graph& graph,
                           std::unique_ptr<tensorflow::Executor>* executor) override {
    const absl::Status refusal = options_.choice == ExecutorChoice::kDefault
                                     ? absl::UnimplementedError("executor: the default one was chosen")
                                     : CheckSequential(graph);
    if (!refusal.ok() && options_.choice == ExecutorChoice::kSingleThreaded) return refusal;
    if (InlineGraphScope* const scope = InlineGraphScope::Current()) {
      scope->graph = nullptr;
      scope->executor = refusal.ok() ? Executor::kSingleThreaded : Executor::kDefault;
    }
    if (refusal.ok()) return NewSequentialExecutor(params, graph, options_.variables_are_constant, name_, executor);
    return NewCancellableExecutor(params, graph, options_.has_pool, executor);
  }

 private:
  const ExecutorOptions options_;
  const std::string& name_;
};

}  // namespace

const char* ExecutorName(Executor executor) {
  return executor == Executor::kSingleThreaded ? "single_threaded" : "default";
}

const std::string& ExecutorType(const ExecutorOptions& options) {
  constexpr int kChoices = 3;
  static const std::string* const names = [] {
    auto* const made = new std::string[kChoices * 4];
    for (int i = 0; i < kChoices * 4; ++i) {
      made[i] = absl::StrCat("PROCESSOR_EXECUTOR_", i);
      const ExecutorOptions registered{static_cast<ExecutorChoice>(i / 4), (i & 2) != 0, (i & 1) != 0};
      tensorflow::ExecutorFactory::Register(made[i], new GraphExecutorFactory(registered, made[i]));
    }
    return made;
  }();
  return names[static_cast<int>(options.choice) * 4 + (options.variables_are_constant ? 2 : 0) +
               (options.has_pool ? 1 : 0)];
}

}  // namespace processor
