// SPDX-License-Identifier: Apache-2.0
// Keeps the threads of a session on the same CPUs, which can change while they work. The slot or the pool of the
// threads owns it.
//
// Threads of others may visit: they work on these CPUs for the time of a request, and get back their own CPUs.
#ifndef PROCESSOR_RUNTIME_THREADS_PLACED_THREADS_H_
#define PROCESSOR_RUNTIME_THREADS_PLACED_THREADS_H_

#include <cstddef>
#include <mutex>
#include <vector>

#include "src/runtime/threads/cpu_mask.h"
#include "src/runtime/threads/cpuset.h"

namespace processor {

class PlacedThreads {
 public:
  /// `cpus` as for PinThread().
  explicit PlacedThreads(const CpuSet& cpus);
  PlacedThreads(const PlacedThreads&) = delete;
  PlacedThreads& operator=(const PlacedThreads&) = delete;

  /// Makes room for that many threads, so that joining needs no memory.
  void Reserve(size_t threads);

  /// Adds the calling thread until it calls Leave(). It must leave before it ends if SetCpus() may be called after
  /// that.
  void Join();
  void Leave();

  /// How a visitor's thread gets back its own CPUs. The visitor owns it.
  struct Visit {
    bool moved = false;
    CpuMask own, here;  // CPUs before and during the visit, if it was moved
  };

  /// Moves the calling thread to those of these CPUs that it may use, until it calls EndVisit(). A thread that may use
  /// no other CPUs is not moved, also not by SetCpus(). `brief`: that the kernel moves the thread is tolerated, so that
  /// a thread that is on one of these CPUs is spared two system calls.
  /// \return false if it may use none of these CPUs, or has a lower priority than the process.
  bool BeginVisit(bool brief, Visit* visit);
  void EndVisit(const Visit& visit) noexcept;

  void SetCpus(const CpuSet& cpus);

 private:
  const int nice_;  // of the process
  std::mutex mutex_;
  CpuSet cpus_;
  CpuMask mask_;                         // the same
  std::vector<int> threads_, visitors_;  // kernel ids
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_THREADS_PLACED_THREADS_H_
