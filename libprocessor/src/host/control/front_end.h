// SPDX-License-Identifier: Apache-2.0
// Threads that read requests and write answers, for all versions alike, kept off the CPUs of baselines. What variants are
// asked would otherwise be read and refused on them.
#ifndef PROCESSOR_HOST_CONTROL_FRONT_END_H_
#define PROCESSOR_HOST_CONTROL_FRONT_END_H_

#include <cstdint>
#include <map>

#include "src/runtime/threads/cpuset.h"
#include "src/runtime/threads/process_threads.h"

namespace processor {

class FrontEnd {
 public:
  /// `owned`: whether the threads of the process are ours to move; else nothing happens.
  explicit FrontEnd(bool owned) : owned_(owned) {}
  ~FrontEnd();
  FrontEnd(const FrontEnd&) = delete;
  FrontEnd& operator=(const FrontEnd&) = delete;

  /// Moves it to where it belongs; to be called now and then. `reserved`: CPUs that baselines have to themselves, none if
  /// some version runs on the threads of the front end.
  void Place(const CpuSet& reserved, int64_t now_ns);

  /// Where it is kept; empty: anywhere.
  const CpuSet& cpus() const { return cpus_; }

  /// What its threads took lately.
  struct Use {
    double cores = 0;    // CPUs that they kept busy
    double busiest = 0;  // part of the time, 0 to 1, that the busiest of them ran or waited for a CPU
  };
  /// Whether it is to be kept on `left` CPUs, which it shares with sessions; `kept`: whether it is now.
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
