// SPDX-License-Identifier: Apache-2.0
// Runs the closures that TensorFlow's executor schedules in one step: on the thread that waits for the step, and on the
// threads of a pool.
//
// With the pool alone, quick requests would wait for slow ones: a loop stays on the thread of the pool that began it,
// and as many loops as the pool has threads leave none to other steps. A step that has a thread of its own always makes
// progress.
#ifndef PROCESSOR_RUNTIME_EXECUTOR_STEP_RUNNER_H_
#define PROCESSOR_RUNTIME_EXECUTOR_STEP_RUNNER_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

namespace processor {

/// Shared by the closures of the step. Any thread may call every function except Help().
class StepRunner : public std::enable_shared_from_this<StepRunner> {
 public:
  using Closure = std::function<void()>;
  using Runner = std::function<void(Closure)>;

  /// `pool`: runs a closure on another thread.
  explicit StepRunner(Runner pool) : pool_(std::move(pool)) {}

  /// Schedules a closure to run soon on some thread. May be called after the step has ended.
  void Schedule(Closure closure);

  /// Makes Help() return, because the step has ended.
  void Finish();

  /// Runs closures until the step has ended. Called once, on the thread that waits for the step.
  void Help();

 private:
  // Runs one closure on a thread of the pool, if one is left.
  void RunOne();

  const Runner pool_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Closure> closures_;
  // For every waiting closure, RunOne() is scheduled in the pool, except for one that is left to the thread in Help().
  bool helper_is_free_ = true;
  bool finished_ = false;
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_EXECUTOR_STEP_RUNNER_H_
