// SPDX-License-Identifier: Apache-2.0
// Decides whether a thread that waits spins before it sleeps. A thread that is awake is told of work without a system
// call, and begins it sooner; but it uses a CPU that others may want.
#ifndef PROCESSOR_RUNTIME_THREADS_ADAPTIVE_SPIN_H_
#define PROCESSOR_RUNTIME_THREADS_ADAPTIVE_SPIN_H_

#include <cstdint>

#include "src/runtime/stats/stats.h"

namespace processor {

/// The waits of one thread, which owns it.
///
/// Spinning pays if recent waits were shorter than kMostNs. The CPU is wanted by others if the kernel took it away from
/// the thread while it could run: then the thread does not spin in its next waits, in twice as many each time.
class AdaptiveSpin {
 public:
  /// The longest time that a wait spins.
  static constexpr int64_t kMostNs = 40'000;

  /// Whether the next wait may spin. At most one system call, and none if waits are long.
  bool Pays() noexcept;

  /// Spins until `ready()`, at most for kMostNs; gives up at once if the kernel took the CPU away.
  /// \return whether it is ready.
  template <typename Ready>
  bool Spin(const Ready& ready) noexcept {
    const int64_t begin_ns = NowNs();
    for (int64_t now_ns = begin_ns;;) {
      for (int i = 0; i < kLooks; ++i) {
        if (ready()) return true;
        __builtin_ia32_pause();
      }
      const int64_t before_ns = now_ns;
      now_ns = NowNs();
      if (now_ns - before_ns > kGapNs || now_ns - begin_ns >= kMostNs) return ready();
    }
  }

  /// Records how long a wait took until there was something to do.
  void Learn(int64_t waited_ns) noexcept;

 private:
  static constexpr int kLooks = 8;           // between readings of the clock
  static constexpr int64_t kGapNs = 10'000;  // between readings: another thread ran meanwhile
  static constexpr int kLeastPause = 32, kMostPause = 4096;

  int64_t usual_ns_ = kMostNs;  // moving average of waits
  int64_t preempted_ = 0;       // how often the kernel had taken the CPU away
  int pause_ = 0;               // waits left without spinning
  int next_pause_ = kLeastPause;
  int spins_ = 0;  // since then, at most kMostPause
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_THREADS_ADAPTIVE_SPIN_H_
