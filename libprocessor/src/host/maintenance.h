// SPDX-License-Identifier: Apache-2.0
// Where versions are loaded, warmed up and unloaded: one job at a time, on CPUs of its own or when nobody else has work.
#ifndef PROCESSOR_HOST_MAINTENANCE_H_
#define PROCESSOR_HOST_MAINTENANCE_H_

#include <atomic>
#include <functional>
#include <thread>

#include "absl/status/status.h"
#include "src/runtime/cpuset.h"
#include "src/runtime/thread_starter.h"

namespace processor {

/// Used by one thread.
class Maintenance {
 public:
  /// `done` is called at the end of each job, on its thread.
  explicit Maintenance(std::function<void()> done) : done_(std::move(done)) {}
  ~Maintenance() { Wait(); }
  Maintenance(const Maintenance&) = delete;
  Maintenance& operator=(const Maintenance&) = delete;

  bool busy() const { return busy_.load(); }

  /// Starts a job, which must not throw; nothing may be busy. `cpus` empty: on all CPUs, with SCHED_IDLE.
  /// \return RESOURCE_EXHAUSTED if no thread is to be had.
  absl::Status Start(const CpuSet& cpus, std::function<void()> job);

  /// Waits for the job that is running.
  void Wait();

 private:
  const std::function<void()> done_;
  ThreadStarter starter_;
  std::atomic<bool> busy_{false};
  // Of each job a new one: a thread without privileges that has once been idle stays so.
  std::thread thread_;
};

}  // namespace processor

#endif  // PROCESSOR_HOST_MAINTENANCE_H_
