// SPDX-License-Identifier: Apache-2.0
// Concerns threads that nobody may wait for, since the kernel gives them a CPU only when no other thread wants it.
#ifndef PROCESSOR_RUNTIME_THREADS_LONE_THREAD_H_
#define PROCESSOR_RUNTIME_THREADS_LONE_THREAD_H_

#include "src/kernels/tower_team.h"

namespace processor {

/// From now on the calling thread computes everything that it runs alone, never together with other threads.
inline void ComputeAlone() { TowerTeams::KeepThisThreadOut(); }

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_THREADS_LONE_THREAD_H_
