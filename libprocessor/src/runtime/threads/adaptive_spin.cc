// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/threads/adaptive_spin.h"

#include <sys/resource.h>

#include <algorithm>

namespace processor {

bool AdaptiveSpin::Pays() noexcept {
  if (usual_ns_ >= kMostNs) return false;
  if (pause_ > 0) {
    --pause_;
    return false;
  }
  rusage usage{};
  if (getrusage(RUSAGE_THREAD, &usage) != 0) return false;
  if (usage.ru_nivcsw == preempted_) {
    spins_ = std::min(spins_ + 1, kMostPause);
    return true;
  }
  preempted_ = usage.ru_nivcsw;
  // A thread that was left alone for long was interrupted by chance.
  pause_ = spins_ == kMostPause ? kLeastPause : next_pause_;
  next_pause_ = std::min(2 * pause_, kMostPause);
  spins_ = 0;
  return false;
}

void AdaptiveSpin::Learn(int64_t waited_ns) noexcept {
  // One long wait, such as the end of a burst, must not hide many short ones.
  usual_ns_ += (std::min(waited_ns, 4 * kMostNs) - usual_ns_) / 8;
}

}  // namespace processor
