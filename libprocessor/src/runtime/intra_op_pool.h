// SPDX-License-Identifier: Apache-2.0
// A session's own pool for the parts of one op (matrix products over many rows), and the threads a model is loaded with.
//
// With one thread there is none: the work is done on the thread that asks, which is what small requests want. Threads
// can be moved to other CPUs while they work.
#ifndef PROCESSOR_RUNTIME_INTRA_OP_POOL_H_
#define PROCESSOR_RUNTIME_INTRA_OP_POOL_H_

#include <functional>
#include <memory>
#include <string>

#include "src/runtime/cpuset.h"
#include "tensorflow/core/platform/threadpool.h"
#include "tensorflow/core/platform/threadpool_interface.h"

namespace processor {

class PinnedEnv;

class IntraOpPool : public tensorflow::thread::ThreadPoolInterface {
 public:
  /// `num_threads` >= 1, `cpus` as for PinThread(). `name` shows in tools such as top -H.
  IntraOpPool(const std::string& name, int num_threads, const CpuSet& cpus);
  ~IntraOpPool() override;

  void SetCpus(const CpuSet& cpus);

  void Schedule(std::function<void()> fn) override;
  void ScheduleWithHint(std::function<void()> fn, int start, int end) override;
  int NumThreads() const override { return num_threads_; }
  int CurrentThreadId() const override;

 private:
  const int num_threads_;
  std::unique_ptr<PinnedEnv> env_;                           // outlives the pool, whose threads it starts
  std::unique_ptr<tensorflow::thread::ThreadPool> threads_;  // null with one thread
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_INTRA_OP_POOL_H_
