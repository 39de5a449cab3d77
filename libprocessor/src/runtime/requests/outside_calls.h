// SPDX-License-Identifier: Apache-2.0
// Calls into a model from threads that are not its own and that nobody joins, such as those that read rows. The model shares
// it with the requests for which they call.
#ifndef PROCESSOR_RUNTIME_REQUESTS_OUTSIDE_CALLS_H_
#define PROCESSOR_RUNTIME_REQUESTS_OUTSIDE_CALLS_H_

#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

namespace processor {

/// Any thread may call.
class OutsideCalls {
 public:
  /// One call. It keeps what it counts in, so that it may end when the model is gone.
  class Scope {
   public:
    explicit Scope(std::shared_ptr<OutsideCalls> calls) : calls_(std::move(calls)) {
      std::lock_guard<std::mutex> lock(calls_->mutex_);
      ++calls_->count_;
    }
    ~Scope() {
      std::lock_guard<std::mutex> lock(calls_->mutex_);
      if (--calls_->count_ == 0) calls_->none_.notify_all();
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const std::shared_ptr<OutsideCalls> calls_;
  };

  /// Waits until no call is going on. A later one must not touch the model any more.
  void Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    none_.wait(lock, [this] { return count_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable none_;
  int count_ = 0;
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_REQUESTS_OUTSIDE_CALLS_H_
