// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/requests/request_watch.h"

#include <pthread.h>

#include <algorithm>
#include <exception>

#include "src/runtime/requests/deadline.h"
#include "src/runtime/requests/exception_status.h"
#include "src/runtime/stats/stats.h"

namespace processor {
namespace {

size_t NumberOfThread() {
  static std::atomic<size_t> threads{0};
  thread_local const size_t number = threads.fetch_add(1, std::memory_order_relaxed);
  return number;
}

}  // namespace

RequestWatch::Act*& RequestWatch::Acts() {
  thread_local Act* innermost = nullptr;
  return innermost;
}

void RequestWatch::Add(Entry* entry, int64_t deadline_us) noexcept {
  entry->shard_ = NumberOfThread() % kShards;
  entry->deadline_us_ = deadline_us == 0 ? kNever : deadline_us;
  Shard& shard = shards_[entry->shard_];
  {
    std::lock_guard<std::mutex> lock(shard.mutex);
    entry->number_ = ++shard.next_number * kShards + entry->shard_;
    entry->previous_ = nullptr;
    entry->next_ = shard.first;
    if (shard.first != nullptr) shard.first->previous_ = entry;
    shard.first = entry;
  }
  // Only what was written here: the request may have been stopped by now.
  if (deadline_us != 0 && deadline_us < wake_us_.load()) WakeAt(deadline_us);
}

void RequestWatch::Remove(Entry* entry) noexcept {
  Shard& shard = shards_[entry->shard_];
  std::unique_lock<std::mutex> lock(shard.mutex);
  (entry->previous_ == nullptr ? shard.first : entry->previous_->next_) = entry->next_;
  if (entry->next_ != nullptr) entry->next_->previous_ = entry->previous_;
  if (entry->acting_ == 0) return;
  // This thread's own acts will find nothing any more.
  for (Act* act = Acts(); act != nullptr; act = act->outer) {
    if (act->entry != entry || act->removed) continue;
    act->removed = true;
    --entry->acting_;
  }
  shard.stopped.wait(lock, [entry] { return entry->acting_ == 0; });
}

// Stops the first entry that matches. False if there is none.
template <typename Matches>
bool RequestWatch::StopFirst(Shard& shard, const absl::Status& why, Matches matches) noexcept {
  std::unique_lock<std::mutex> lock(shard.mutex);
  Entry* entry = shard.first;
  while (entry != nullptr && !matches(*entry)) entry = entry->next_;
  if (entry == nullptr) return false;
  ++entry->acting_;
  lock.unlock();
  Act act{entry, Acts(), false};
  Acts() = &act;
  const bool stopped = entry->Stop(why);
  Acts() = act.outer;
  if (act.removed) return stopped;
  lock.lock();
  // Whoever waits for it in Remove() destroys it then.
  if (--entry->acting_ == 0) shard.stopped.notify_all();
  return stopped;
}

bool RequestWatch::Stop(uint64_t number, const absl::Status& why) noexcept {
  return StopFirst(shards_[number % kShards], why, [number](const Entry& entry) { return entry.number_ == number; });
}

void RequestWatch::StopAll(const absl::Status& why) noexcept {
  for (Shard& shard : shards_) {
    // Entries come and go meanwhile. Numbers rise, and those that come later are not meant.
    uint64_t below = 0;
    {
      std::lock_guard<std::mutex> lock(shard.mutex);
      below = (shard.next_number + 1) * kShards;
    }
    for (;;) {
      uint64_t highest = 0;
      {
        std::lock_guard<std::mutex> lock(shard.mutex);
        for (const Entry* entry = shard.first; entry != nullptr; entry = entry->next_) {
          if (entry->number_ < below) highest = std::max(highest, entry->number_);
        }
      }
      if (highest == 0) break;
      Stop(highest, why);
      below = highest;
    }
  }
}

void RequestWatch::WakeAt(int64_t deadline_us) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  if (ended_ || deadline_us >= wake_us_.load()) return;
  try {
    if (!thread_.joinable()) thread_ = std::thread([this] { LookAtDeadlines(); });
  } catch (const std::exception&) {
    return;  // no thread to be had: the deadline is still looked at before and after the request is run
  }
  wake_us_.store(deadline_us);
  wake_.notify_one();
}

void RequestWatch::LookAtDeadlines() noexcept {
  pthread_setname_np(pthread_self(), "deadlines");
  std::unique_lock<std::mutex> lock(mutex_);
  while (!ended_) {
    const int64_t wake_us = wake_us_.load();
    if (wake_us == kNever) {
      wake_.wait(lock);
      continue;
    }
    if (NowNs() / 1000 < wake_us) {
      wake_.wait_until(lock, DeadlinePoint(wake_us));
      continue;
    }
    // Before they are looked at: who comes meanwhile, and may be missed, says when he is to be looked at.
    wake_us_.store(kNever);
    lock.unlock();
    const int64_t next_us = StopLate();
    lock.lock();
    if (next_us < wake_us_.load()) wake_us_.store(next_us);
  }
}

// Stops those whose deadline has passed, and answers when the next one's does.
int64_t RequestWatch::StopLate() noexcept {
  const absl::Status late = Attempt([] { return DeadlinePassed(); });
  const int64_t now_us = NowNs() / 1000;
  int64_t next_us = kNever;
  for (Shard& shard : shards_) {
    const auto is_late = [now_us](Entry& entry) {
      if (entry.deadline_us_ > now_us) return false;
      entry.deadline_us_ = kNever;  // once
      return true;
    };
    for (bool more = true; more;) {
      // What StopFirst() answers is whether it was stopped, so that the list itself says when there are no more.
      {
        std::lock_guard<std::mutex> lock(shard.mutex);
        more = false;
        for (const Entry* entry = shard.first; entry != nullptr; entry = entry->next_) {
          if (entry->deadline_us_ <= now_us) {
            more = true;
          } else {
            next_us = std::min(next_us, entry->deadline_us_);
          }
        }
      }
      if (more) StopFirst(shard, late, is_late);
    }
  }
  return next_us;
}

void RequestWatch::End() noexcept {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ended_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

size_t RequestWatch::size() const {
  size_t count = 0;
  for (const Shard& shard : shards_) {
    std::lock_guard<std::mutex> lock(shard.mutex);
    for (const Entry* entry = shard.first; entry != nullptr; entry = entry->next_) ++count;
  }
  return count;
}

}  // namespace processor
