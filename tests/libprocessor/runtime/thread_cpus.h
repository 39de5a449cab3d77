// SPDX-License-Identifier: Apache-2.0
// Where the calling thread may run, which is not what the process may use.
#ifndef PROCESSOR_TESTS_RUNTIME_THREAD_CPUS_H_
#define PROCESSOR_TESTS_RUNTIME_THREAD_CPUS_H_

#include <sched.h>

#include "src/runtime/cpuset.h"

namespace processor {

inline CpuSet CpusOfThisThread() {
  cpu_set_t mask;
  CpuSet cpus;
  if (sched_getaffinity(0, sizeof mask, &mask) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &mask)) cpus.push_back(cpu);
  }
  return cpus;
}

}  // namespace processor

#endif  // PROCESSOR_TESTS_RUNTIME_THREAD_CPUS_H_
