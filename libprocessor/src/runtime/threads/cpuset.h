// SPDX-License-Identifier: Apache-2.0
// Sets of CPUs as the configuration writes them, and the CPUs that this process may use.
#ifndef PROCESSOR_RUNTIME_THREADS_CPUSET_H_
#define PROCESSOR_RUNTIME_THREADS_CPUSET_H_

#include <sched.h>

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace processor {

/// CPU numbers in ascending order, without repetition.
using CpuSet = std::vector<int>;

/// Returns the CPUs that the process may use: the affinity of its main thread, whichever thread calls. Cgroups and
/// taskset limit them; other threads may be pinned to fewer.
CpuSet AllowedCpus();

/// Parses one group per session, separated by ';', each of CPUs and ranges separated by ',': "0-3,8;4-7,9".
/// \return INVALID_ARGUMENT if the text does not parse, has not `num_groups` groups, or names a CPU outside `allowed`.
absl::Status ParseCpusets(std::string_view text, int num_groups, const CpuSet& allowed, std::vector<CpuSet>* groups);

/// Formats CPUs, as in "0-3,8".
std::string FormatCpuset(const CpuSet& cpus);
/// Formats groups of CPUs, as in "0-3,8;4-7".
std::string FormatCpusets(const std::vector<CpuSet>& groups);

/// Moves a thread, named by its kernel id (0: the calling one), to `cpus`; does nothing for an empty set. A thread that
/// has ended, or a CPU that was taken away, is no error: affinity is advice.
void PinThread(int thread_id, const CpuSet& cpus);

/// Returns the CPUs of a thread, named as for PinThread(); none if it has ended.
CpuSet CpusOfThread(int thread_id);

/// Moves the main thread. AllowedCpus() returns the CPUs from before, until another program moves the main thread.
void PinMainThread(const CpuSet& cpus);

struct CpuMove {
  CpuSet from;  // what AllowedCpus() returns
  CpuSet to;
};

/// Returns where PinMainThread() has moved the main thread; both sets are empty if it has not.
CpuMove CurrentMove();

/// Returns the kernel id of the calling thread.
int ThreadId();

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_THREADS_CPUSET_H_
