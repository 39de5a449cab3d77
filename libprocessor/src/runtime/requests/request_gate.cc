// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/requests/request_gate.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "src/runtime/requests/deadline.h"

namespace processor {

absl::Status RequestGate::Refusal(State state) const {
  switch (state) {
    case State::kServing:
      break;
    case State::kDraining:
      return absl::UnavailableError(absl::StrCat(owner_, ": draining, expected one that serves"));
    case State::kClosed:
      return absl::FailedPreconditionError(absl::StrCat(owner_, ": freed, expected ", expected_));
  }
  return absl::OkStatus();
}

absl::Status RequestGate::Admit() {
  // The request is counted first: after closing the gate with nobody inside, its owner may destroy what requests use.
  Enter();
  const State state = this->state();
  if (state == State::kServing) return absl::OkStatus();
  Leave();
  return Refusal(state);
}

void RequestGate::Leave() noexcept {
  if (in_flight_.fetch_sub(1) == 1 && state() != State::kServing) {
    std::lock_guard<std::mutex> lock(mutex_);
    idle_.notify_all();
  }
}

absl::Status RequestGate::BeginDrain() {
  State serving = State::kServing;
  if (!state_.compare_exchange_strong(serving, State::kDraining) && serving == State::kClosed) {
    return Refusal(State::kClosed);
  }
  return absl::OkStatus();
}

absl::Status RequestGate::WaitUntilIdle(int64_t deadline_us) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto idle = [this] { return in_flight() == 0; };
  if (deadline_us == 0) {
    idle_.wait(lock, idle);
    return absl::OkStatus();
  }
  if (idle_.wait_until(lock, DeadlinePoint(deadline_us), idle)) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat(owner_, ": ", in_flight(), " requests left at the deadline"));
}

void RequestGate::WaitUntilIdleFor(double seconds) {
  std::unique_lock<std::mutex> lock(mutex_);
  idle_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return in_flight() == 0; });
}

}  // namespace processor
