// SPDX-License-Identifier: Apache-2.0
// For threads that no other thread may wait for, because the kernel gives them a CPU only in idle time.
#ifndef PROCESSOR_RUNTIME_THREADS_LONE_THREAD_H_
#define PROCESSOR_RUNTIME_THREADS_LONE_THREAD_H_

#include "src/kernels/tower_team.h"

namespace processor {

/// Excludes the calling thread from computing a request together with other threads.
inline void ComputeAlone() { TowerTeams::KeepThisThreadOut(); }

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_THREADS_LONE_THREAD_H_
