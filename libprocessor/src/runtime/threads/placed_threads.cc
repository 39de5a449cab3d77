// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/threads/placed_threads.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "src/runtime/threads/process_threads.h"
#include "src/runtime/threads/thread_slice.h"

namespace processor {

namespace {

// Returns whether the calling thread has a lower priority than threads with the value `nice`. Asks the kernel at some
// calls only.
bool IsInBackground(int nice) {
  constexpr int kCalls = 64;
  thread_local int left = 0;
  thread_local bool found = false;
  if (left-- > 0) return found;
  left = kCalls;
  return found = YieldsToNice(nice);
}

}  // namespace

PlacedThreads::PlacedThreads(const CpuSet& cpus)
    : nice_(getpriority(PRIO_PROCESS, static_cast<id_t>(getpid()))), cpus_(cpus), mask_(cpus) {}

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

bool PlacedThreads::BeginVisit(bool brief, Visit* visit) {
  // A thread that gets a CPU only in idle time would keep others from the session meanwhile.
  if (IsInBackground(nice_)) return false;
  std::lock_guard<std::mutex> lock(mutex_);
  if (cpus_.empty() || (brief && mask_.Contains(sched_getcpu()))) return true;
  visit->own = CpuMask::OfCaller();
  visit->here = visit->own & mask_;
  if (visit->here.empty()) return false;
  if (visit->here == visit->own) return true;
  visitors_.push_back(ThreadId());
  visit->here.PinCaller();
  visit->moved = true;
  return true;
}

void PlacedThreads::EndVisit(const Visit& visit) noexcept {
  if (!visit.moved) return;
  std::lock_guard<std::mutex> lock(mutex_);
  visitors_.erase(std::find(visitors_.begin(), visitors_.end(), ThreadId()));
  // Another program may have moved the thread meanwhile: then it stays there. A cgroup may have taken CPUs.
  if (CpuMask::OfCaller().IsWithin(visit.here | mask_)) ReturnToProcess(visit.own);
}

void PlacedThreads::SetCpus(const CpuSet& cpus) {
  std::lock_guard<std::mutex> lock(mutex_);
  cpus_ = cpus;
  mask_ = CpuMask(cpus);
  for (int thread : threads_) PinThread(thread, cpus_);
  for (int visitor : visitors_) PinThread(visitor, cpus_);
}

}  // namespace processor
