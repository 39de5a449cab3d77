// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/deadline_reaper.h"

#include <exception>

#include "src/runtime/deadline.h"
#include "src/runtime/stats.h"

namespace processor {

void DeadlineReaper::Add(int64_t deadline_us, uint64_t id) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  if (stopped_) return;
  try {
    deadlines_.emplace(deadline_us, id);
    if (!thread_.joinable()) thread_ = std::thread([this] { Work(); });
  } catch (const std::exception&) {
    return;  // no memory or no thread: the deadline is still checked before the request is run
  }
  if (deadlines_.begin()->second == id) wake_.notify_one();
}

void DeadlineReaper::Remove(int64_t deadline_us, uint64_t id) {
  std::lock_guard<std::mutex> lock(mutex_);
  deadlines_.erase({deadline_us, id});
}

size_t DeadlineReaper::size() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return deadlines_.size();
}

void DeadlineReaper::Stop() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopped_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void DeadlineReaper::Work() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopped_) {
    if (deadlines_.empty()) {
      wake_.wait(lock);
      continue;
    }
    const int64_t now_us = NowNs() / 1000;
    const auto first = deadlines_.begin();
    if (first->first > now_us) {
      wake_.wait_until(lock, DeadlinePoint(first->first));
      continue;
    }
    const uint64_t id = first->second;
    deadlines_.erase(first);
    lock.unlock();
    try {
      expire_(id);
    } catch (const std::exception&) {
      // It waits on, and the deadline is checked before it is run.
    }
    lock.lock();
  }
}

}  // namespace processor
