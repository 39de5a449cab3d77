// SPDX-License-Identifier: Apache-2.0
// How soon the kernel lets a thread run that wakes where others compute.
#ifndef PROCESSOR_RUNTIME_THREADS_THREAD_SLICE_H_
#define PROCESSOR_RUNTIME_THREADS_THREAD_SLICE_H_

#include <cstdint>

namespace processor {

/// Sets the slice of time that a thread, named by its kernel id (0: the calling one), asks for; 0: the kernel's own, some
/// milliseconds. Whoever asks for less is let in sooner and gets no more of the CPU. Linux 6.12 and later; advice, and no
/// error, anywhere else. Threads of other policies than the usual one are left as they are.
void SetSlice(int thread_id, int64_t slice_ns);

/// What a thread asks for [ns]; 0 where the kernel does not tell.
int64_t SliceOfThread(int thread_id);

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_THREADS_THREAD_SLICE_H_
