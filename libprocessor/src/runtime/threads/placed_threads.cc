// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/threads/placed_threads.h"

#include <algorithm>

#include "src/runtime/threads/process_threads.h"

namespace processor {

void PlacedThreads::Reserve(size_t threads) {
  std::lock_guard<std::mutex> lock(mutex_);
  threads_.reserve(threads);
}

void PlacedThreads::Join() {
  KeepThreadInPlace();
  std::lock_guard<std::mutex> lock(mutex_);
  threads_.push_back(ThreadId());
  PinThread(0, cpus_);
}

void PlacedThreads::Leave() {
  std::lock_guard<std::mutex> lock(mutex_);
  // The kernel may reuse the number for a thread that must not be moved.
  threads_.erase(std::find(threads_.begin(), threads_.end(), ThreadId()));
}

void PlacedThreads::SetCpus(const CpuSet& cpus) {
  std::lock_guard<std::mutex> lock(mutex_);
  cpus_ = cpus;
  for (int thread : threads_) PinThread(thread, cpus_);
}

}  // namespace processor
