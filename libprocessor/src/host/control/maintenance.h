// SPDX-License-Identifier: Apache-2.0
// Runs the jobs that load, warm up and unload versions: a few at a time, on CPUs reserved for them or in idle time.
#ifndef PROCESSOR_HOST_CONTROL_MAINTENANCE_H_
#define PROCESSOR_HOST_CONTROL_MAINTENANCE_H_

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "src/runtime/threads/cpuset.h"
#include "src/runtime/threads/thread_starter.h"

namespace processor {

/// A number of lanes, each with one job at a time. For one thread; LoadLanes owns it.
class Maintenance {
 public:
  /// `done` is called at the end of each job, on a thread that has the scheduling of the one that called Start().
  explicit Maintenance(std::function<void()> done, int lanes = 1);
  ~Maintenance() { Wait(); }
  Maintenance(const Maintenance&) = delete;
  Maintenance& operator=(const Maintenance&) = delete;

  int lanes() const { return static_cast<int>(lanes_.size()); }
  bool busy(int lane = 0) const { return lanes_[lane]->busy.load(); }

  /// Starts a job, which must not throw, on a lane that is not busy. If `cpus` is empty, it runs on all CPUs, in idle
  /// time.
  /// \return RESOURCE_EXHAUSTED if no thread can be started.
  absl::Status Start(const CpuSet& cpus, std::function<void()> job, int lane = 0);

  /// Waits for the jobs that are running.
  void Wait();

 private:
  struct Lane {
    std::atomic<bool> busy{false};
    // Waits for the thread of the job, whose end takes long if the CPUs are busy. Each job has a new thread: without
    // privileges, a thread cannot leave SCHED_IDLE.
    std::thread thread;
  };

  const std::function<void()> done_;
  ThreadStarter starter_;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace processor

#endif  // PROCESSOR_HOST_CONTROL_MAINTENANCE_H_
