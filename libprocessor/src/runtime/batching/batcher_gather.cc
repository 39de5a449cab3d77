// SPDX-License-Identifier: Apache-2.0
// Makes up batches; batcher.cc hands out places.
#include <sched.h>

#include <cstdint>
#include <utility>

#include "src/runtime/batching/batcher.h"
#include "src/runtime/stats/stats.h"

namespace processor {

// Runs `first` in a batch with the waiting entries that fit.
void Batcher::Lead(BatchEntry* first, int session) noexcept {
  first->next_ = nullptr;
  if (first->rows > 0) GatherOrYield(first);
  int64_t requests = 0;
  for (const BatchEntry* entry = first; entry != nullptr; entry = entry->next_) ++requests;
  running_.fetch_add(requests, std::memory_order_relaxed);
  const int64_t start_ns = NowNs();
  setup_.run(session, first);
  running_.fetch_sub(requests, std::memory_order_relaxed);
  const int64_t usual_ns = usual_run_ns_.load(std::memory_order_relaxed);
  usual_run_ns_.store(usual_ns + (NowNs() - start_ns - usual_ns) / 8, std::memory_order_relaxed);
}

// Adds requests to the batch of `first`. If none wait, threads that are about to send one may get this CPU first.
void Batcher::GatherOrYield(BatchEntry* first) noexcept {
  const bool may_yield = yield_policy_.CountRun();
  if (num_waiting_.load(std::memory_order_relaxed) > 0) {
    Gather(first);
  } else if (may_yield) {
    const int64_t before_ns = NowNs();
    sched_yield();
    const int64_t taken_ns = NowNs() - before_ns;
    const int64_t joined = num_waiting_.load(std::memory_order_relaxed) > 0 ? Gather(first) : 0;
    yield_policy_.Learn(taken_ns, joined);
  }
}

// \return the number of requests that joined.
int64_t Batcher::Gather(BatchEntry* first) noexcept {
  BatchEntry* last = first;
  BatchEntry* unread = nullptr;  // decoded before it is known whether they fit
  BatchEntry** last_unread = &unread;
  int64_t rows = first->rows, max_rows = 0, joined = 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    max_rows = options_.max_rows;
    int64_t expected = rows;
    int64_t most = Share();
    const auto gather = [&](int cpu) {
      for (BatchEntry *entry = waiting_.front(), *next = nullptr; entry != nullptr; entry = next) {
        if (expected >= max_rows || most == 0) break;
        next = entry->next_;
        if (cpu >= 0 && entry->cpu_ != cpu) continue;
        if (!entry->prepared_) {
          --most;
          Unlist(entry);
          *last_unread = entry;
          last_unread = &entry->next_;
          ++expected;
        } else if (entry->rows > 0 && expected + entry->rows <= max_rows && entry->kind == first->kind) {
          --most;
          Unlist(entry);
          last = last->next_ = entry;
          rows += entry->rows;
          expected += entry->rows;
          ++joined;
        }
      }
    };
    if (ByCpu() && first->cpu_ >= 0 && static_cast<int64_t>(waiting_.size()) > most) gather(first->cpu_);
    gather(-1);
  }
  while (unread != nullptr) {
    BatchEntry* const entry = std::exchange(unread, unread->next_);
    entry->next_ = nullptr;
    if (const absl::Status s = Prepare(*entry); !s.ok()) {
      entry->Fail(s);
    } else if (Postpone(entry)) {
      continue;
    } else if (entry->rows > 0 && rows + entry->rows <= max_rows && entry->kind == first->kind) {
      last = last->next_ = entry;
      rows += entry->rows;
      ++joined;
    } else {
      GiveBack(entry);
    }
  }
  return joined;
}

void Batcher::GiveBack(BatchEntry* entry) noexcept {
  absl::Status stopped;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!stopped_) {
      List(entry);
      // If no worker can be started, this thread's place will serve it.
      HandOut(-1, -1).IgnoreError();
      return;
    }
    stopped = stop_status_;
  }
  entry->Fail(stopped);
}

// Returns how many waiting entries should join a run, such that all places have equal work. A place that is busy with
// less than its share becomes free before a run of all would end.
int64_t Batcher::Share() const {
  if (options_.mode == BatchMode::kTimed) return INT64_MAX;
  const int64_t places = int64_t{setup_.sessions} * setup_.places;
  const int64_t all = 1 + static_cast<int64_t>(waiting_.size()) + running_.load(std::memory_order_relaxed);
  return (all + places - 1) / places - 1;
}

}  // namespace processor
