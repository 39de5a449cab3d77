// SPDX-License-Identifier: Apache-2.0
// Counts, by CPU, the threads that lead a run and those that return from one: their requests have been run, and they
// still have to write the responses. A batcher owns it and uses it under its lock.
#ifndef PROCESSOR_RUNTIME_BATCHING_THREADS_BY_CPU_H_
#define PROCESSOR_RUNTIME_BATCHING_THREADS_BY_CPU_H_

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace processor {

/// A CPU is a number that Here() has returned, or negative for none.
class ThreadsByCpu {
 public:
  ThreadsByCpu() : counts_(static_cast<size_t>(std::max<long>(sysconf(_SC_NPROCESSORS_CONF), 1))) {}

  /// Returns the CPU of the calling thread. If the numbers of CPUs have gaps, two CPUs may share a number. Needs no lock.
  int Here() const { return std::max(sched_getcpu(), 0) % static_cast<int>(counts_.size()); }

  void BeginRun(int cpu) { ++At(cpu).leading; }
  void EndRun(int cpu) { --At(cpu).leading; }
  void BeginReturn(int cpu) {
    if (At(cpu).returning++ == 0) ++num_cpus_;
  }
  void EndReturn(int cpu) {
    if (--At(cpu).returning == 0) --num_cpus_;
  }

  bool AnyReturnTo(int cpu) const { return cpu >= 0 && At(cpu).returning > 0; }
  /// The number of CPUs to which threads return.
  int num_cpus() const { return num_cpus_; }
  /// Whether threads lead a run on a CPU or return to it.
  bool AnyOn(int cpu) const { return cpu >= 0 && At(cpu).leading + At(cpu).returning > 0; }

 private:
  struct Counts {
    int leading = 0;
    int returning = 0;
  };

  Counts& At(int cpu) { return counts_[static_cast<size_t>(cpu)]; }
  const Counts& At(int cpu) const { return counts_[static_cast<size_t>(cpu)]; }

  std::vector<Counts> counts_;  // by CPU
  int num_cpus_ = 0;
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_BATCHING_THREADS_BY_CPU_H_
