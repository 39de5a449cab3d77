// SPDX-License-Identifier: Apache-2.0
#include "src/host/control/maintenance.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>

#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/host/control/idle_time.h"
#include "src/runtime/threads/process_threads.h"

namespace processor {
namespace {

// A load needs a tenth of the CPUs' time to be idle. With less idle time it would take forever: a SCHED_IDLE thread
// gets a 300th of a busy CPU, and only a privileged process can raise its class again. Such a load may then use a
// tenth of one CPU.
constexpr double kEnoughIdle = 0.1;
constexpr std::chrono::milliseconds kWatched{100};
constexpr int kNiceOfATenth = 10;

void StepBack(const CpuSet& cpus) {
  pthread_setname_np(pthread_self(), "maintenance");
  KeepThreadInPlace();
  if (!cpus.empty()) return PinThread(0, cpus);
  if (IdleShare(AllowedCpus(), kWatched) < kEnoughIdle) {
    setpriority(PRIO_PROCESS, static_cast<id_t>(ThreadId()), kNiceOfATenth);
    return;
  }
  const sched_param none{};
  sched_setscheduler(0, SCHED_IDLE, &none);
}

}  // namespace

Maintenance::Maintenance(std::function<void()> done, int lanes) : done_(std::move(done)) {
  for (int i = 0; i < lanes; ++i) lanes_.push_back(std::make_unique<Lane>());
}

absl::Status Maintenance::Start(const CpuSet& cpus, std::function<void()> job, int number) {
  Lane& lane = *lanes_[number];
  if (lane.thread.joinable()) lane.thread.join();
  lane.busy = true;
  try {
    lane.thread = std::thread([this, &lane, cpus, job = std::move(job)] {
      StepBack(cpus);
      {
        const StartThreadsElsewhere elsewhere(&starter_);
        job();
      }
      lane.busy = false;
      done_();
    });
  } catch (const std::exception& e) {
    lane.busy = false;
    return absl::ResourceExhaustedError(absl::StrCat("no thread to be had: ", e.what()));
  }
  return absl::OkStatus();
}

void Maintenance::Wait() {
  for (const auto& lane : lanes_) {
    if (lane->thread.joinable()) lane->thread.join();
  }
}

}  // namespace processor
