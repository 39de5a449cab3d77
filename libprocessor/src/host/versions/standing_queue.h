// SPDX-License-Identifier: Apache-2.0
// Distinguishes a queue that stays long from one that is long for a moment. VersionLoad owns it.
#ifndef PROCESSOR_HOST_VERSIONS_STANDING_QUEUE_H_
#define PROCESSOR_HOST_VERSIONS_STANDING_QUEUE_H_

#include <atomic>
#include <cstdint>

namespace processor {

/// Whether a queue has been long for a while. One observation proves little: a pause of the machine makes any queue
/// long for some milliseconds, and refusing requests then would lose some that could be answered. Therefore the queue
/// must have been long at each look for kIntervalNs. From then on each look that finds it long counts, until none has
/// for kForgetNs.
///
/// Any thread may call. Of two simultaneous looks, each may miss the other, which moves the limits by one look.
class StandingQueue {
 public:
  static constexpr int64_t kIntervalNs = 100'000'000;
  static constexpr int64_t kForgetNs = 1'000'000'000;

  /// Records a look at the queue at `now_ns`.
  /// \return whether to act on its length.
  bool Look(bool is_long, int64_t now_ns) {
    const int64_t since = since_ns_.load(std::memory_order_relaxed);
    if (since == kShort && !is_long) return false;
    const int64_t last = last_long_ns_.load(std::memory_order_relaxed);
    const bool forgotten = now_ns - last > kForgetNs;
    const bool stands = since != kShort && !forgotten && last - since >= kIntervalNs;
    if (!is_long) {
      if (!stands) since_ns_.store(kShort, std::memory_order_relaxed);
      return false;
    }
    if (since == kShort || forgotten) since_ns_.store(now_ns, std::memory_order_relaxed);
    last_long_ns_.store(now_ns, std::memory_order_relaxed);
    return stands || (since != kShort && !forgotten && now_ns - since >= kIntervalNs);
  }

 private:
  static constexpr int64_t kShort = -1;

  std::atomic<int64_t> since_ns_{kShort};  // the first of the long looks
  std::atomic<int64_t> last_long_ns_{0};
};

}  // namespace processor

#endif  // PROCESSOR_HOST_VERSIONS_STANDING_QUEUE_H_
