// SPDX-License-Identifier: Apache-2.0
// Moves the threads of the process to other CPUs, except those that called KeepThreadInPlace(), have CPUs of their own,
// or run in idle time.
#ifndef PROCESSOR_RUNTIME_THREADS_PROCESS_THREADS_H_
#define PROCESSOR_RUNTIME_THREADS_PROCESS_THREADS_H_

#include <cstdint>
#include <map>

#include "src/runtime/threads/cpu_mask.h"
#include "src/runtime/threads/cpuset.h"

namespace processor {

/// Excludes the calling thread from those that MoveThreads() moves. If it was moved with them, it runs on all CPUs of
/// the process again.
void KeepThreadInPlace();

/// Moves these threads, including the main thread, which does not change what AllowedCpus() returns. Threads that they
/// start later inherit their CPUs; threads that other threads start have to be moved again. On fewer CPUs than the
/// process may use, they get a short time slice, so that they run soon on CPUs where other threads compute.
void MoveThreads(const CpuSet& cpus);

/// Moves the calling thread back to `own`, its CPUs before it was moved elsewhere for a while. If it belongs to these
/// threads, it goes where MoveThreads() has moved them since.
void ReturnToProcess(const CpuMask& own) noexcept;

struct ThreadTime {
  int64_t ran_ns = 0;
  int64_t waited_ns = 0;  // time that it waited for a CPU
};

/// Returns the time of each of these threads so far, by kernel ids; empty if the kernel does not provide it.
std::map<int, ThreadTime> TimeOfThreads();

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_THREADS_PROCESS_THREADS_H_
