// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/threads/background_thread.h"

#include <sched.h>
#include <sys/resource.h>

#include <chrono>

#include "src/runtime/threads/cpuset.h"
#include "src/runtime/threads/idle_time.h"

namespace processor {
namespace {

// With less idle time, a SCHED_IDLE thread gets a 300th of a busy CPU, and only a privileged process can raise its class
// again.
constexpr double kEnoughIdle = 0.1;
constexpr std::chrono::milliseconds kWatched{100};
constexpr int kNiceOfATenth = 10;

}  // namespace

void RunInIdleTime() {
  if (IdleShare(AllowedCpus(), kWatched) < kEnoughIdle) {
    setpriority(PRIO_PROCESS, static_cast<id_t>(ThreadId()), kNiceOfATenth);
    return;
  }
  const sched_param none{};
  sched_setscheduler(0, SCHED_IDLE, &none);
}

}  // namespace processor
