// SPDX-License-Identifier: Apache-2.0
// Keeps the threads of a session on the same CPUs, which can change while they work. The slot or the pool of the
// threads owns it.
#ifndef PROCESSOR_RUNTIME_THREADS_PLACED_THREADS_H_
#define PROCESSOR_RUNTIME_THREADS_PLACED_THREADS_H_

#include <cstddef>
#include <mutex>
#include <vector>

#include "src/runtime/threads/cpuset.h"

namespace processor {

class PlacedThreads {
 public:
  /// `cpus` as for PinThread().
  explicit PlacedThreads(const CpuSet& cpus) : cpus_(cpus) {}
  PlacedThreads(const PlacedThreads&) = delete;
  PlacedThreads& operator=(const PlacedThreads&) = delete;

  /// Makes room for that many threads, so that joining needs no memory.
  void Reserve(size_t threads);

  /// Adds the calling thread until it calls Leave(). It must leave before it ends if SetCpus() may be called after
  /// that.
  void Join();
  void Leave();

  void SetCpus(const CpuSet& cpus);

 private:
  std::mutex mutex_;
  CpuSet cpus_;
  std::vector<int> threads_;  // kernel ids
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_THREADS_PLACED_THREADS_H_
