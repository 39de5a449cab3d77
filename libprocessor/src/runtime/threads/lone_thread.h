// SPDX-License-Identifier: Apache-2.0
// Threads that nobody may wait for, since the kernel gives them a CPU only when no other thread wants it.
#ifndef PROCESSOR_RUNTIME_THREADS_LONE_THREAD_H_
#define PROCESSOR_RUNTIME_THREADS_LONE_THREAD_H_

#include "src/kernels/tower_team.h"

namespace processor {

/// Has what this thread runs from now on computed by it alone, never together with requests of other threads.
inline void ComputeAlone() { TowerTeams::KeepThisThreadOut(); }

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_THREADS_LONE_THREAD_H_
