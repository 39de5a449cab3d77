// SPDX-License-Identifier: Apache-2.0
// Moves the threads of the process that have no place of their own: not those that keep their place, have CPUs of their
// own, or run in idle time.
#ifndef PROCESSOR_RUNTIME_THREADS_PROCESS_THREADS_H_
#define PROCESSOR_RUNTIME_THREADS_PROCESS_THREADS_H_

#include <cstdint>
#include <map>

#include "src/runtime/threads/cpuset.h"

namespace processor {

/// Excludes the calling thread from those that MoveThreads() moves. If it was moved with them, it runs on all CPUs of
/// the process again.
void KeepThreadInPlace();

/// Moves these threads, including the main thread, which does not change what AllowedCpus() returns. Threads that they
/// start later inherit their CPUs; a thread that another one starts has to be moved again. On fewer CPUs than the
/// process may use they ask for a short time slice, so that threads that compute there let them in at once.
void MoveThreads(const CpuSet& cpus);

struct ThreadTime {
  int64_t ran_ns = 0;
  int64_t waited_ns = 0;  // time that it waited for a CPU
};

/// Returns the time of each of these threads so far, by kernel ids; none if the kernel does not tell.
std::map<int, ThreadTime> TimeOfThreads();

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_THREADS_PROCESS_THREADS_H_
