// SPDX-License-Identifier: Apache-2.0
// Measures how busy the CPUs of the machine are.
#ifndef PROCESSOR_RUNTIME_THREADS_IDLE_TIME_H_
#define PROCESSOR_RUNTIME_THREADS_IDLE_TIME_H_

#include <chrono>
#include <string_view>

#include "src/runtime/threads/cpuset.h"

namespace processor {

/// Ticks of CPUs since the machine started.
struct CpuTicks {
  int64_t idle = 0;
  int64_t total = 0;
};

/// Sums the ticks of some CPUs in the text of /proc/stat. Waiting for a disk counts as idle; CPUs that are not in the
/// text add nothing.
CpuTicks SumTicks(std::string_view proc_stat, const CpuSet& cpus);

/// Measures CPUs for a while; blocks the calling thread.
/// \return the idle share of their time, 0 to 1; 1 if the kernel does not provide it.
double IdleShare(const CpuSet& cpus, std::chrono::milliseconds time);

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_THREADS_IDLE_TIME_H_
