// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/version/output_subsets.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "src/runtime/requests/exception_status.h"
#include "src/runtime/threads/process_threads.h"

namespace processor {

OutputSubsets::~OutputSubsets() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopped_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

int OutputSubsets::Find(int signature, absl::Span<const int> outputs) {
  const std::shared_ptr<const Subsets> subsets = published_.Read();
  const auto found = subsets->find(Less::Wanted(signature, outputs));
  if (found != subsets->end()) return found->second.made ? found->second.number : -1;
  if (subsets->size() >= kMost) return -1;
  // If there is no memory or no thread for it, a later request tries again.
  Attempt([&] {
    Want({signature, {outputs.begin(), outputs.end()}});
    return absl::OkStatus();
  }).IgnoreError();
  return -1;
}

absl::Status OutputSubsets::MakeNow(int signature, absl::Span<const int> outputs, int* callable) {
  const Key key{signature, {outputs.begin(), outputs.end()}};
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!Add(key)) return absl::ResourceExhaustedError(absl::StrCat("outputs: more than ", kMost, " subsets"));
  }
  return Make(key, callable);
}

// Returns false if there are too many.
bool OutputSubsets::Add(const Key& key) {
  if (subsets_.find(key) != subsets_.end()) return true;
  if (subsets_.size() >= kMost) return false;
  subsets_.emplace(key, Callable{first_ + static_cast<int>(subsets_.size())});
  Publish();
  return true;
}

void OutputSubsets::Want(Key key) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (stopped_ || subsets_.find(key) != subsets_.end()) return;
  if (!making_) {
    if (thread_.joinable()) thread_.join();  // it has ended
    making_ = true;
    const absl::Status started = Attempt([this] {
      thread_ = std::thread([this] { MakeWanted(); });
      return absl::OkStatus();
    });
    making_ = started.ok();
    if (!making_) return;
  }
  if (Add(key)) wanted_.push_back(std::move(key));
}

absl::Status OutputSubsets::Make(const Key& key, int* callable) {
  std::lock_guard<std::mutex> make_lock(make_mutex_);
  Callable found;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    found = subsets_.find(key)->second;
  }
  if (!found.made) {
    if (absl::Status s = make_(found.number, key.signature, key.outputs); !s.ok()) return s;
    std::lock_guard<std::mutex> lock(mutex_);
    subsets_.find(key)->second.made = true;
    Publish();
  }
  *callable = found.number;
  return absl::OkStatus();
}

void OutputSubsets::MakeWanted() {
  KeepThreadInPlace();
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopped_ && !wanted_.empty()) {
    const Key key = std::move(wanted_.front());
    wanted_.pop_front();
    lock.unlock();
    // If it cannot be made, the callable of all outputs serves.
    int unused = -1;
    Attempt([&] { return Make(key, &unused); }).IgnoreError();
    lock.lock();
  }
  making_ = false;
}

}  // namespace processor
