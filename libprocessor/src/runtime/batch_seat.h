// SPDX-License-Identifier: Apache-2.0
// How a thread that has brought a request to a batcher hears what became of it.
#ifndef PROCESSOR_RUNTIME_BATCH_SEAT_H_
#define PROCESSOR_RUNTIME_BATCH_SEAT_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "absl/status/status.h"
#include "src/runtime/batcher.h"

namespace processor {

/// Where a thread waits for its entry to be run, or for a place to run it.
class BatchEntry::Seat {
 public:
  static constexpr int64_t kNever = INT64_MAX;

  /// The point of a time in nanoseconds on CLOCK_MONOTONIC.
  static std::chrono::steady_clock::time_point PointOf(int64_t ns) {
    return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(ns));
  }

  /// What has become of it, once.
  void Lead(int session) { Settle(session, absl::OkStatus()); }
  void End(const absl::Status& status) { Settle(-1, status); }

  /// False if the time came first. `until_ns`: kNever for as long as it takes.
  bool WaitUntil(int64_t until_ns) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (until_ns != kNever) return wake_.wait_until(lock, PointOf(until_ns), [this] { return settled_; });
    wake_.wait(lock, [this] { return settled_; });
    return true;
  }

  int session() const { return session_; }  // -1: it has ended
  const absl::Status& status() const { return status_; }

 private:
  void Settle(int session, const absl::Status& status) {
    std::lock_guard<std::mutex> lock(mutex_);
    session_ = session;
    status_ = status;
    settled_ = true;
    // Under the lock: the thread may leave, and the seat be gone, as soon as it can see the news.
    wake_.notify_one();
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  bool settled_ = false;
  int session_ = -1;
  absl::Status status_;
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_BATCH_SEAT_H_
