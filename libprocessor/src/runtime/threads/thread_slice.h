// SPDX-License-Identifier: Apache-2.0
// Sets how soon the kernel runs a thread that wakes on a busy CPU. Any thread may call.
#ifndef PROCESSOR_RUNTIME_THREADS_THREAD_SLICE_H_
#define PROCESSOR_RUNTIME_THREADS_THREAD_SLICE_H_

#include <cstdint>

namespace processor {

/// Sets the time slice that a thread, named by its kernel id (0: the calling one), asks for; 0: the kernel's default of
/// some milliseconds. A thread with a shorter slice runs sooner, and gets no larger share of the CPU. This has an
/// effect on Linux 6.12 and later, and is ignored elsewhere. Threads of other scheduling policies than the default are
/// left unchanged.
void SetSlice(int thread_id, int64_t slice_ns);

/// Returns the time slice [ns] that a thread asks for; 0 if the kernel does not provide it.
int64_t SliceOfThread(int thread_id);

/// Returns whether the calling thread gets CPU time only in idle time, or less than threads with the value `nice`.
bool YieldsToNice(int nice);

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_THREADS_THREAD_SLICE_H_
