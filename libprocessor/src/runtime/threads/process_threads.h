// SPDX-License-Identifier: Apache-2.0
// Threads of the process that have no place of their own, and where they run together: not those that keep theirs, have
// CPUs of their own, or step back behind others.
#ifndef PROCESSOR_RUNTIME_THREADS_PROCESS_THREADS_H_
#define PROCESSOR_RUNTIME_THREADS_PROCESS_THREADS_H_

#include <cstdint>
#include <map>

#include "src/runtime/threads/cpuset.h"

namespace processor {

/// From now on the calling thread is none of those that MoveThreads() moves. It runs wherever the process may if it ran
/// where these were moved.
void KeepThreadInPlace();

/// Moves them, the main thread included, which does not change what AllowedCpus() answers. Those that they start later
/// inherit their CPUs; a thread that one of the others starts has to be moved again. On fewer CPUs than the process may use
/// they ask for a short slice of time, so that what computes there lets them in at once.
void MoveThreads(const CpuSet& cpus);

struct ThreadTime {
  int64_t ran_ns = 0;
  int64_t waited_ns = 0;  // for a CPU
};

/// What each of these threads has taken so far, by its kernel id; none where the kernel does not tell.
std::map<int, ThreadTime> TimeOfThreads();

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_THREADS_PROCESS_THREADS_H_
