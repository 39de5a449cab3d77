// SPDX-License-Identifier: Apache-2.0
#include "src/host/control/maintenance.h"

#include <pthread.h>

#include <exception>
#include <future>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/runtime/threads/background_thread.h"
#include "src/runtime/threads/process_threads.h"

namespace processor {
namespace {

void StepBack(const CpuSet& cpus) {
  pthread_setname_np(pthread_self(), "maintenance");
  KeepThreadInPlace();
  if (!cpus.empty()) return PinThread(0, cpus);
  RunInIdleTime();
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
    std::promise<void> started;
    std::future<void> start = started.get_future();
    lane.thread = std::thread([this, &lane, cpus, job = std::move(job), started = std::move(started)]() mutable {
      pthread_setname_np(pthread_self(), "maintenance-end");
      KeepThreadInPlace();
      std::thread working;
      try {
        working = std::thread([&] {
          StepBack(cpus);
          const StartThreadsElsewhere elsewhere(&starter_);
          job();
        });
      } catch (...) {
        started.set_exception(std::current_exception());
        return;
      }
      started.set_value();
      working.join();
      lane.busy = false;
      done_();
    });
    start.get();
  } catch (const std::exception& e) {
    if (lane.thread.joinable()) lane.thread.join();
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
