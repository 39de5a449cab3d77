// SPDX-License-Identifier: Apache-2.0
// Keeps the front end, the threads that read requests and write responses for all versions, off the CPUs of baselines.
// Otherwise requests of variants would be read and refused on these CPUs.
#ifndef PROCESSOR_HOST_CONTROL_FRONT_END_H_
#define PROCESSOR_HOST_CONTROL_FRONT_END_H_

#include <cstdint>
#include <map>

#include "src/runtime/threads/cpuset.h"
#include "src/runtime/threads/process_threads.h"

namespace processor {

/// For the control thread; the host's control owns it.
class FrontEnd {
 public:
  /// `owned`: whether the threads of the process may be moved; if not, Place() does nothing.
  explicit FrontEnd(bool owned) : owned_(owned) {}
  ~FrontEnd();
  FrontEnd(const FrontEnd&) = delete;
  FrontEnd& operator=(const FrontEnd&) = delete;

  /// Moves the front end off the reserved CPUs, or back if it needs more CPUs. To be called regularly. `reserved`: the
  /// CPUs that baselines have to themselves; none if a version runs on the threads of the front end.
  void Place(const CpuSet& reserved, int64_t now_ns);

  /// The CPUs to which it is restricted; empty if it may run on all.
  const CpuSet& cpus() const { return cpus_; }

  /// The recent CPU time of its threads.
  struct Use {
    double cores = 0;    // CPUs that they kept busy
    double busiest = 0;  // part of the time, 0 to 1, that the busiest of them ran or waited for a CPU
  };
  /// Whether to restrict it to `left` CPUs, which it shares with sessions. `kept`: whether it is restricted now.
  static bool KeepOff(bool kept, const Use& use, size_t left);

 private:
  Use Look(int64_t now_ns);
  void Move(const CpuSet& cpus);

  const bool owned_;
  CpuSet cpus_;
  std::map<int, ThreadTime> times_;
  int64_t looked_ns_ = 0;
  int64_t not_before_ns_ = 0;
};

}  // namespace processor

#endif  // PROCESSOR_HOST_CONTROL_FRONT_END_H_
