// SPDX-License-Identifier: Apache-2.0
// How busy the CPUs are with whatever runs on the machine.
#ifndef PROCESSOR_HOST_CONTROL_IDLE_TIME_H_
#define PROCESSOR_HOST_CONTROL_IDLE_TIME_H_

#include <chrono>
#include <string_view>

#include "src/runtime/threads/cpuset.h"

namespace processor {

/// Ticks of CPUs since the machine started.
struct CpuTicks {
  int64_t idle = 0;
  int64_t total = 0;
};

/// Sums up what /proc/stat says of some CPUs; waiting for a disk counts as idle. CPUs that it does not name count nothing.
CpuTicks SumTicks(std::string_view proc_stat, const CpuSet& cpus);

/// Watches CPUs for a while.
/// \return Share of their time that nobody used, 0 to 1; 1 where the machine does not tell.
double IdleShare(const CpuSet& cpus, std::chrono::milliseconds time);

}  // namespace processor

#endif  // PROCESSOR_HOST_CONTROL_IDLE_TIME_H_
