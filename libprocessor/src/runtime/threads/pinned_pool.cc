// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/threads/pinned_pool.h"

#include <pthread.h>

#include "src/runtime/threads/placed_threads.h"
#include "src/runtime/threads/thread_starter.h"
#include "tensorflow/core/platform/env.h"

namespace processor {

// Starts threads on given CPUs, and remembers them.
class PinnedEnv : public tensorflow::EnvWrapper {
 public:
  PinnedEnv(const std::string& name, const CpuSet& cpus)
      : EnvWrapper(tensorflow::Env::Default()), name_(name.substr(0, 15)), placed_(cpus) {}

  tensorflow::Thread* StartThread(const tensorflow::ThreadOptions& options, const std::string& name,
                                  absl::AnyInvocable<void()> fn) override {
    return EnvWrapper::StartThread(options, name, [this, fn = std::move(fn)]() mutable {
      pthread_setname_np(pthread_self(), name_.c_str());  // TensorFlow does not name it
      placed_.Join();
      fn();
    });
  }

  PlacedThreads& placed() { return placed_; }

 private:
  const std::string name_;  // cut to the kernel's limit
  PlacedThreads placed_;    // no thread ends before the pool
};

PinnedPool::PinnedPool(const std::string& name, int num_threads, const CpuSet& cpus, Single single)
    : num_threads_(num_threads), env_(std::make_unique<PinnedEnv>(name, cpus)) {
  if (num_threads > 1 || single == Single::kOwn) {
    env_->placed().Reserve(static_cast<size_t>(num_threads));
    // The pool must not spin, so that an idle model leaves its cores to others.
    StartServingThreads([&] {
      threads_ = std::make_unique<tensorflow::thread::ThreadPool>(env_.get(), tensorflow::ThreadOptions(), name,
                                                                  num_threads, /*low_latency_hint=*/false);
    });
  }
}

PinnedPool::~PinnedPool() = default;

PlacedThreads& PinnedPool::placed() { return env_->placed(); }

void PinnedPool::Schedule(std::function<void()> fn) {
  if (threads_ == nullptr) {
    fn();
  } else {
    threads_->Schedule(std::move(fn));
  }
}

void PinnedPool::ScheduleWithHint(std::function<void()> fn, int start, int end) {
  if (threads_ == nullptr) {
    fn();
  } else {
    threads_->ScheduleWithHint(std::move(fn), start, end);
  }
}

int PinnedPool::CurrentThreadId() const { return threads_ == nullptr ? -1 : threads_->CurrentThreadId(); }

}  // namespace processor
