// SPDX-License-Identifier: Apache-2.0
// A session's own pools, for the parts of one op (matrix products over many rows) and for ops that do not wait for each
// other, and the threads a model is loaded with. Threads can be moved to other CPUs while they work.
#ifndef PROCESSOR_RUNTIME_THREADS_PINNED_POOL_H_
#define PROCESSOR_RUNTIME_THREADS_PINNED_POOL_H_

#include <functional>
#include <memory>
#include <string>

#include "src/runtime/threads/cpuset.h"
#include "src/runtime/threads/placed_threads.h"
#include "tensorflow/core/platform/threadpool.h"
#include "tensorflow/core/platform/threadpool_interface.h"

namespace processor {

class PinnedEnv;

class PinnedPool : public tensorflow::thread::ThreadPoolInterface {
 public:
  /// What one thread means: none, so that the work is done on the thread that asks, as small requests want it; or one of
  /// the pool's own, as those need it who schedule while they run, or they would pile up on the stack of that thread.
  enum class Single { kCaller, kOwn };

  /// `num_threads` >= 1, `cpus` as for PinThread(). `name` shows in tools such as top -H.
  PinnedPool(const std::string& name, int num_threads, const CpuSet& cpus, Single single = Single::kCaller);
  ~PinnedPool() override;

  /// Its threads.
  PlacedThreads& placed();

  void Schedule(std::function<void()> fn) override;
  void ScheduleWithHint(std::function<void()> fn, int start, int end) override;
  int NumThreads() const override { return num_threads_; }
  int CurrentThreadId() const override;

 private:
  const int num_threads_;
  std::unique_ptr<PinnedEnv> env_;                           // outlives the pool, whose threads it starts
  std::unique_ptr<tensorflow::thread::ThreadPool> threads_;  // null if there are none
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_THREADS_PINNED_POOL_H_
