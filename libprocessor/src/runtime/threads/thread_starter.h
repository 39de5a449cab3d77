// SPDX-License-Identifier: Apache-2.0
// Starts threads on behalf of other threads. A new thread inherits CPUs and scheduling. A thread that loads in the
// background, on other CPUs or with SCHED_IDLE, must therefore not start threads that will serve: without privileges,
// their scheduling could not be restored.
#ifndef PROCESSOR_RUNTIME_THREADS_THREAD_STARTER_H_
#define PROCESSOR_RUNTIME_THREADS_THREAD_STARTER_H_

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace processor {

/// Owns a thread that starts threads for others. It has the scheduling of the thread that constructs the starter. Any
/// thread may call Run().
class ThreadStarter {
 public:
  ThreadStarter();
  ~ThreadStarter();
  ThreadStarter(const ThreadStarter&) = delete;
  ThreadStarter& operator=(const ThreadStarter&) = delete;

  /// Runs `start` on that thread, waits for it, and rethrows its exception.
  void Run(const std::function<void()>& start);

 private:
  void Work();

  std::mutex callers_;  // one at a time
  std::mutex mutex_;
  std::condition_variable wake_;
  const std::function<void()>* start_ = nullptr;
  std::exception_ptr thrown_;
  bool stopped_ = false;
  std::thread thread_;
};

/// While it exists, threads of sessions that the calling thread would start are started by `starter`.
class StartThreadsElsewhere {
 public:
  explicit StartThreadsElsewhere(ThreadStarter* starter);
  ~StartThreadsElsewhere();
  StartThreadsElsewhere(const StartThreadsElsewhere&) = delete;
  StartThreadsElsewhere& operator=(const StartThreadsElsewhere&) = delete;

 private:
  ThreadStarter* const before_;
};

/// Runs a function that starts threads that will serve: on the calling thread, or on that of the current
/// StartThreadsElsewhere.
void StartServingThreads(const std::function<void()>& start);

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_THREADS_THREAD_STARTER_H_
