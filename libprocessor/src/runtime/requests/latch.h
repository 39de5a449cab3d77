// SPDX-License-Identifier: Apache-2.0
// Waits for one event, once.
#ifndef PROCESSOR_RUNTIME_REQUESTS_LATCH_H_
#define PROCESSOR_RUNTIME_REQUESTS_LATCH_H_

#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "src/runtime/requests/deadline.h"

namespace processor {

/// Any thread may call.
class Latch {
 public:
  void Set() {
    std::lock_guard<std::mutex> lock(mutex_);
    set_ = true;
    wake_.notify_all();
  }
  void Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    wake_.wait(lock, [this] { return set_; });
  }
  /// Returns false if `deadline_us` came first.
  bool WaitUntil(int64_t deadline_us) {
    std::unique_lock<std::mutex> lock(mutex_);
    return wake_.wait_until(lock, DeadlinePoint(deadline_us), [this] { return set_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool set_ = false;
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_REQUESTS_LATCH_H_
