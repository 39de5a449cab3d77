// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/executor/step_runner.h"

#include <utility>

namespace processor {

void StepRunner::Schedule(Closure closure) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (finished_) {
    lock.unlock();
    return pool_(std::move(closure));
  }
  closures_.push_back(std::move(closure));
  if (helper_is_free_ && closures_.size() == 1) {
    wake_.notify_one();
    return;
  }
  lock.unlock();
  pool_([self = shared_from_this()] { self->RunOne(); });
}

void StepRunner::RunOne() {
  std::unique_lock<std::mutex> lock(mutex_);
  if (closures_.empty()) return;
  const Closure closure = std::move(closures_.front());
  closures_.pop_front();
  lock.unlock();
  closure();
}

void StepRunner::Finish() {
  std::lock_guard<std::mutex> lock(mutex_);
  finished_ = true;
  wake_.notify_one();
}

void StepRunner::Help() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return finished_ || !closures_.empty(); });
    if (closures_.empty()) return;
    {
      const Closure closure = std::move(closures_.front());
      closures_.pop_front();
      helper_is_free_ = false;
      lock.unlock();
      closure();
    }
    lock.lock();
    helper_is_free_ = true;
  }
}

}  // namespace processor
