// SPDX-License-Identifier: Apache-2.0
// A waiting request's deadline, from when it has been accepted to when it ends.
#ifndef PROCESSOR_RUNTIME_DEADLINE_WATCH_H_
#define PROCESSOR_RUNTIME_DEADLINE_WATCH_H_

#include <atomic>
#include <cstdint>

#include "src/runtime/deadline_reaper.h"

namespace processor {

class DeadlineWatch {
 public:
  explicit DeadlineWatch(DeadlineReaper* reaper) : reaper_(reaper) {}

  /// The request may have ended by now: then nothing is left behind, for either this sees that it has, or End() sees that
  /// it is watched.
  void Begin(int64_t deadline_us, uint64_t id) noexcept {
    watched_.store(true);
    reaper_->Add(deadline_us, id);
    if (ended_.load()) reaper_->Remove(deadline_us, id);
  }

  void End(int64_t deadline_us, uint64_t id) noexcept {
    ended_.store(true);
    if (watched_.load()) reaper_->Remove(deadline_us, id);
  }

 private:
  DeadlineReaper* const reaper_;
  std::atomic<bool> watched_{false};
  std::atomic<bool> ended_{false};
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_DEADLINE_WATCH_H_
