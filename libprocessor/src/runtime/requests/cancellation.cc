// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/requests/cancellation.h"

#include "src/runtime/requests/exception_status.h"

namespace processor {
namespace {

thread_local Cancellation* current = nullptr;

}  // namespace

bool Cancellation::Request(const absl::Status& why) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  if (requested_.load(std::memory_order_relaxed)) return false;
  why_ = why;
  requested_.store(true, std::memory_order_release);
  if (listener_ != nullptr) listener_->OnCancel();
  return true;
}

absl::Status Cancellation::why() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return why_;
}

bool Cancellation::Listen(Listener* listener) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  if (requested_.load(std::memory_order_relaxed)) return false;
  listener_ = listener;
  return true;
}

void Cancellation::Unlisten() noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  listener_ = nullptr;
}

Cancellation* Cancellation::Current() noexcept { return current; }

Cancellation::Scope::Scope(Cancellation* cancellation) noexcept : before_(current) { current = cancellation; }

Cancellation::Scope::~Scope() { current = before_; }

JointCancellation::JointCancellation(const std::vector<Cancellation*>& members)
    : left_(members.size()), members_(members.size()) {
  for (size_t i = 0; i < members.size(); ++i) {
    members_[i].joint = this;
    members_[i].cancellation = members[i];
    if (!members[i]->Listen(&members_[i])) CountDown();
  }
}

JointCancellation::~JointCancellation() {
  for (Member& member : members_) member.cancellation->Unlisten();
}

void JointCancellation::CountDown() noexcept {
  if (left_.fetch_sub(1) > 1) return;
  all_.Request(StatusWithoutThrowing(absl::StatusCode::kCancelled, "requests: all that ran together were cancelled"));
}

}  // namespace processor
