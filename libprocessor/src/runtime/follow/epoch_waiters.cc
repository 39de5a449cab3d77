// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/follow/epoch_waiters.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

namespace processor {

template <typename IsDue>
std::vector<EpochWaiters::Waiter> EpochWaiters::Take(IsDue&& is_due) {
  const auto first =
      std::stable_partition(waiters_.begin(), waiters_.end(), [&](const Waiter& waiter) { return !is_due(waiter); });
  std::vector<Waiter> taken(std::make_move_iterator(first), std::make_move_iterator(waiters_.end()));
  waiters_.erase(first, waiters_.end());
  return taken;
}

void EpochWaiters::Wait(int64_t epoch, int64_t until_us, Continue next) {
  absl::Status status;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (IsBarred(epoch)) {
      status = LateStatus(epoch);
    } else if (reached_ < epoch) {
      if (stopped_.ok()) {
        waiters_.push_back({epoch, until_us, std::move(next)});
        return;
      }
      status = stopped_;
    }
  }
  next(status);
}

void EpochWaiters::Reach(int64_t epoch) {
  std::vector<Waiter> due;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    reached_ = epoch;
    due = Take([&](const Waiter& waiter) { return waiter.epoch <= epoch; });
  }
  for (const Waiter& waiter : due) waiter.next(absl::OkStatus());
}

void EpochWaiters::SetHeld(std::optional<int64_t> epoch) {
  std::lock_guard<std::mutex> lock(mutex_);
  held_ = epoch;
}

absl::Status EpochWaiters::LateStatus(int64_t epoch) const {
  return absl::FailedPreconditionError(
      absl::StrCat("request: epoch ", epoch, " expected, ",
                   IsBarred(epoch) ? absl::StrCat("the model is held at ", *held_, " by a rollback")
                                   : absl::StrCat("the model has reached ", reached_)));
}

int64_t EpochWaiters::Expire(int64_t now_us) {
  std::vector<Waiter> due;
  std::vector<absl::Status> statuses;
  int64_t next_us = INT64_MAX;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    due = Take([&](const Waiter& waiter) { return waiter.until_us <= now_us || IsBarred(waiter.epoch); });
    for (const Waiter& waiter : due) statuses.push_back(LateStatus(waiter.epoch));
    for (const Waiter& waiter : waiters_) next_us = std::min(next_us, waiter.until_us);
  }
  for (size_t i = 0; i < due.size(); ++i) due[i].next(statuses[i]);
  return next_us;
}

void EpochWaiters::Stop(const absl::Status& status) {
  std::vector<Waiter> due;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopped_ = status;
    due.swap(waiters_);
  }
  for (const Waiter& waiter : due) waiter.next(status);
}

}  // namespace processor
