// SPDX-License-Identifier: Apache-2.0
// A pool of threads that can be moved to other CPUs while they work. A slot owns two: for the parts of one op (matrix
// products over many rows), and for ops that do not depend on each other. A load has pools of its own.
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
  /// Where a pool of one thread works: on the calling thread, which is best for small requests; or on a thread of its
  /// own, for work that schedules more work and would exhaust the caller's stack.
  enum class Single { kCaller, kOwn };

  /// `num_threads` >= 1, `cpus` as for PinThread(). Tools such as top -H show `name`.
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
