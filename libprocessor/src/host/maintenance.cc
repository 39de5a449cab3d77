// SPDX-License-Identifier: Apache-2.0
#include "src/host/maintenance.h"

#include <pthread.h>
#include <sched.h>

#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"

namespace processor {
namespace {

void StepBack(const CpuSet& cpus) {
  pthread_setname_np(pthread_self(), "maintenance");
  if (!cpus.empty()) return PinThread(0, cpus);
  const sched_param none{};
  sched_setscheduler(0, SCHED_IDLE, &none);
}

}  // namespace

absl::Status Maintenance::Start(const CpuSet& cpus, std::function<void()> job) {
  Wait();
  busy_ = true;
  try {
    thread_ = std::thread([this, cpus, job = std::move(job)] {
      StepBack(cpus);
      {
        const StartThreadsElsewhere elsewhere(&starter_);
        job();
      }
      busy_ = false;
      done_();
    });
  } catch (const std::exception& e) {
    busy_ = false;
    return absl::ResourceExhaustedError(absl::StrCat("no thread to be had: ", e.what()));
  }
  return absl::OkStatus();
}

void Maintenance::Wait() {
  if (thread_.joinable()) thread_.join();
}

}  // namespace processor
