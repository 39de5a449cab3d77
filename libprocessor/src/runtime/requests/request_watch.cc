// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/requests/request_watch.h"

#include <pthread.h>

#include <algorithm>
#include <exception>

#include "src/base/thread_number.h"
#include "src/runtime/requests/deadline.h"
#include "src/runtime/requests/exception_status.h"
#include "src/runtime/stats/stats.h"

namespace processor {
RequestWatch::Act*& RequestWatch::Acts() {
  thread_local Act* innermost = nullptr;
  return innermost;
}

void RequestWatch::Add(Entry* entry, int64_t deadline_us) noexcept {
  entry->shard_ = ThreadNumber() % kShards;
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
  // Uses only local values: the request may have been stopped and destroyed by now.
  if (deadline_us != 0 && deadline_us < wake_us_.load()) WakeAt(deadline_us);
}

void RequestWatch::Remove(Entry* entry) noexcept {
  Shard& shard = shards_[entry->shard_];
  std::unique_lock<std::mutex> lock(shard.mutex);
  (entry->previous_ == nullptr ? shard.first : entry->previous_->next_) = entry->next_;
  if (entry->next_ != nullptr) entry->next_->previous_ = entry->previous_;
  if (entry->acting_ == 0) return;
  // Stop() calls of this thread that are still running must not use the entry any more.
  for (Act* act = Acts(); act != nullptr; act = act->outer) {
    if (act->entry != entry || act->removed) continue;
    act->removed = true;
    --entry->acting_;
  }
  shard.stopped.wait(lock, [entry] { return entry->acting_ == 0; });
}

// Stops the first entry that matches. Returns false if there is none or it had ended already.
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
  // A thread that waits in Remove() destroys the entry afterwards.
  if (--entry->acting_ == 0) shard.stopped.notify_all();
  return stopped;
}

bool RequestWatch::Stop(uint64_t number, const absl::Status& why) noexcept {
  return StopFirst(shards_[number % kShards], why, [number](const Entry& entry) { return entry.number_ == number; });
}

void RequestWatch::StopAll(const absl::Status& why) noexcept {
  for (Shard& shard : shards_) {
    // Entries are added and removed meanwhile. Numbers rise, and later entries are not stopped.
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
    return;  // no thread could be started: deadlines are still checked before and after a run
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
    // Reset before the check: a request that is added meanwhile, and may be missed, sets the time again.
    wake_us_.store(kNever);
    lock.unlock();
    const int64_t next_us = StopLate();
    lock.lock();
    if (next_us < wake_us_.load()) wake_us_.store(next_us);
  }
}

// Stops the requests whose deadline has passed, and returns the next deadline.
int64_t RequestWatch::StopLate() noexcept {
  const absl::Status late = Attempt([] { return DeadlinePassed(); });
  const int64_t now_us = NowNs() / 1000;
  int64_t next_us = kNever;
  for (Shard& shard : shards_) {
    const auto is_late = [now_us](Entry& entry) {
      if (entry.deadline_us_ > now_us) return false;
      entry.deadline_us_ = kNever;  // stop it only once
      return true;
    };
    for (bool more = true; more;) {
      // StopFirst() returns false also for a request that had ended, so the list is searched for more.
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
