// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/executor/cancellable_executor.h"

#include <memory>
#include <utility>

#include "src/runtime/executor/step_cancellation.h"
#include "src/runtime/executor/step_runner.h"
#include "tensorflow/core/common_runtime/executor_factory.h"
#include "tsl/platform/denormal.h"

namespace processor {
namespace {

class CancellableExecutor : public tensorflow::Executor {
 public:
  CancellableExecutor(std::unique_ptr<tensorflow::Executor> executor, bool has_pool)
      : executor_(std::move(executor)), has_pool_(has_pool) {}

  absl::Status Run(const Args& args) override {
    const StepCancellation cancellation(args.cancellation_manager);
    if (!has_pool_) return executor_->Run(args);
    const auto runner = std::make_shared<StepRunner>(args.runner);
    Args own = args;
    own.runner = [runner](StepRunner::Closure closure) { runner->Schedule(std::move(closure)); };
    absl::Status result;
    executor_->RunAsync(own, [runner, &result](const absl::Status& status) {
      result = status;
      runner->Finish();
    });
    {
      // As in threads of TensorFlow's pools: results must not depend on the thread of a kernel.
      const tsl::port::ScopedFlushDenormal flush;
      runner->Help();
    }
    return result;
  }

 private:
  // Executors of functions run within a step that is watched already.
  void RunAsyncInternal(const Args& args, DoneCallback done) override { executor_->RunAsync(args, std::move(done)); }

  const std::unique_ptr<tensorflow::Executor> executor_;
  const bool has_pool_;
};

}  // namespace

absl::Status NewCancellableExecutor(const tensorflow::LocalExecutorParams& params, const tensorflow::Graph& graph,
                                    bool has_pool, std::unique_ptr<tensorflow::Executor>* executor) {
  std::unique_ptr<tensorflow::Executor> made;
  if (absl::Status s = tensorflow::NewExecutor("DEFAULT", params, graph, &made); !s.ok()) return s;
  *executor = std::make_unique<CancellableExecutor>(std::move(made), has_pool);
  return absl::OkStatus();
}

}  // namespace processor
