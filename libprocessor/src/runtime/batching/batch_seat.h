// SPDX-License-Identifier: Apache-2.0
// Where a thread waits for its request at a batcher. The waiting thread owns the seat; the thread that runs or ends the
// request wakes it.
#ifndef PROCESSOR_RUNTIME_BATCHING_BATCH_SEAT_H_
#define PROCESSOR_RUNTIME_BATCHING_BATCH_SEAT_H_

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>

#include "absl/status/status.h"
#include "src/runtime/batching/batcher.h"

namespace processor {

/// Waits until the entry has ended, or until the thread gets a place to run a batch itself. This costs one wait and one
/// wake of a futex per request.
class BatchEntry::Seat {
 public:
  static constexpr int64_t kNever = INT64_MAX;

  /// Wake the waiting thread: to run a batch on a session, or because its entry has ended. Exactly one of the two is
  /// called, once.
  void Lead(int session) { Settle(session, absl::OkStatus()); }
  void End(const absl::Status& status) { Settle(-1, status); }

  /// Waits for Lead() or End(); returns false if `until_ns` passes first. `until_ns`: on CLOCK_MONOTONIC; kNever: no
  /// limit.
  bool WaitUntil(int64_t until_ns) {
    until_ns = std::max<int64_t>(until_ns, 0);
    const timespec until = {static_cast<time_t>(until_ns / 1'000'000'000), static_cast<long>(until_ns % 1'000'000'000)};
    while (settled_.load(std::memory_order_acquire) == 0) {
      const long answer = syscall(SYS_futex, &settled_, FUTEX_WAIT_BITSET_PRIVATE, 0,
                                  until_ns == kNever ? nullptr : &until, nullptr, FUTEX_BITSET_MATCH_ANY);
      if (answer != 0 && errno == ETIMEDOUT) return settled_.load(std::memory_order_acquire) != 0;
    }
    return true;
  }

  int session() const { return session_; }  // -1: it has ended
  const absl::Status& status() const { return status_; }

 private:
  void Settle(int session, const absl::Status& status) {
    session_ = session;
    status_ = status;
    settled_.store(1, std::memory_order_release);
    // The thread may have returned already and destroyed the seat. Then this wakes no thread, or one that checks its
    // own condition again.
    syscall(SYS_futex, &settled_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  }

  std::atomic<uint32_t> settled_{0};
  int session_ = -1;
  absl::Status status_;
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_BATCHING_BATCH_SEAT_H_
