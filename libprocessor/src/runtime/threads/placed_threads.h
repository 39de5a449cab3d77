// SPDX-License-Identifier: Apache-2.0
// Threads of a session, which run on the same CPUs. These can change while they work.
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

  /// Makes room for so many. Joining needs memory without it.
  void Reserve(size_t threads);

  /// Makes the calling thread one of them, until it says that it leaves: it must before it ends, unless nothing is moved
  /// after that.
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
