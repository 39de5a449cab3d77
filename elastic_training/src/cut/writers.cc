// SPDX-License-Identifier: Apache-2.0
#include "src/cut/writers.h"

#include <algorithm>

namespace elastic_training {

Writers& Writers::OfProcess() {
  static Writers* const writers = new Writers;  // never destroyed: threads may outlive main
  return *writers;
}

void Writers::NotifyAll() {
  const std::lock_guard<std::mutex> lock(mutex_);
  changed_.notify_all();
}

void Writers::EnterClosed() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    // Counted while it looked; a cut that waits for the writers must not wait for this one.
    if (state_.fetch_sub(1, std::memory_order_relaxed) == (kClosed | 1)) changed_.notify_all();
    while (stopped_ || !held_.empty()) {
      if (stopped_ || held_.empty()) {
        changed_.wait(lock);
      } else {
        const auto first = std::min_element(held_.begin(), held_.end(),
                                            [](const Brake* a, const Brake* b) { return a->last_read < b->last_read; });
        if (changed_.wait_until(lock, (*first)->last_read + patience_) == std::cv_status::timeout) GiveUp();
      }
    }
    if ((state_.fetch_add(1, std::memory_order_acquire) & kClosed) == 0) return;
  }
}

void Writers::GiveUp() {
  const Clock::time_point now = Clock::now();
  const auto end = std::remove_if(held_.begin(), held_.end(), [&](Brake* brake) {
    if (now - brake->last_read < patience_) return false;
    brake->gave_up.store(true);
    return true;
  });
  held_.erase(end, held_.end());
  Open();
}

void Writers::Open() {
  if (!stopped_ && held_.empty()) state_.fetch_and(~kClosed, std::memory_order_release);
  changed_.notify_all();
}

void Writers::Stop() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return !stopped_; });
  stopped_ = true;
  state_.fetch_or(kClosed, std::memory_order_relaxed);
  changed_.wait(lock, [&] { return state_.load(std::memory_order_acquire) == kClosed; });
}

void Writers::Resume() {
  const std::lock_guard<std::mutex> lock(mutex_);
  stopped_ = false;
  Open();
}

void Writers::Hold(Brake* brake) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (brake->gave_up.load() || std::find(held_.begin(), held_.end(), brake) != held_.end()) return;
  brake->last_read = Clock::now();
  held_.push_back(brake);
  state_.fetch_or(kClosed, std::memory_order_relaxed);
}

void Writers::Read(Brake* brake, bool release) {
  const std::lock_guard<std::mutex> lock(mutex_);
  brake->last_read = Clock::now();
  if (!release) return;
  held_.erase(std::remove(held_.begin(), held_.end(), brake), held_.end());
  Open();
}

}  // namespace elastic_training
