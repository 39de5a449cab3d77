// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/request_threads.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>

#include "absl/strings/str_cat.h"
#include "src/runtime/cpuset.h"
#include "src/runtime/process_threads.h"
#include "src/runtime/stats.h"
#include "src/runtime/thread_starter.h"

namespace processor {
namespace {

// If no request has begun for so long while some wait, those that run are slow ones.
constexpr int64_t kPatienceNs = 20'000'000;
// Threads beyond those that are needed all the time stay for so long.
constexpr auto kIdleTime = std::chrono::seconds(10);
constexpr size_t kLeastMost = 16;

}  // namespace

RequestThreads& RequestThreads::OfProcess() {
  static auto* const threads = [] {
    const size_t cpus = std::max<size_t>(AllowedCpus().size(), 1);
    return new RequestThreads(cpus, std::max(4 * cpus, kLeastMost));
  }();
  return *threads;
}

RequestThreads::~RequestThreads() {
  std::unique_lock<std::mutex> lock(mutex_);
  ended_ = true;
  wake_.notify_all();
  left_.wait(lock, [this] { return threads_ == 0; });
}

size_t RequestThreads::threads() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return threads_;
}

absl::Status RequestThreads::StartThread() {
  try {
    StartServingThreads([this] { std::thread([this] { Work(); }).detach(); });
    ++threads_;
  } catch (const std::exception& e) {
    if (threads_ == 0) return absl::ResourceExhaustedError(absl::StrCat("no thread to be had: ", e.what()));
  }
  return absl::OkStatus();
}

absl::Status RequestThreads::Call(Source* source, Share* share) {
  std::lock_guard<std::mutex> lock(mutex_);
  // One more than run at a time: it sees whether those that run take long. Some may be on their way. Where slow ones have
  // taken that one too, there has to be another.
  const bool all_run = threads_ == running_ && threads_ < most_;
  if ((threads_ - running_ <= waiting_.size() && threads_ <= at_once_) || all_run) {
    if (absl::Status s = StartThread(); !s.ok()) return s;
  }
  waiting_.push_back({source, share});
  ++source->calls_;
  wake_.notify_one();
  return absl::OkStatus();
}

void RequestThreads::Forget(Source* source) noexcept {
  std::unique_lock<std::mutex> lock(mutex_);
  waiting_.erase(
      std::remove_if(waiting_.begin(), waiting_.end(), [source](const Waiter& one) { return one.source == source; }),
      waiting_.end());
  source->calls_ = 0;
  left_.wait(lock, [source] { return source->inside_ == 0; });
}

bool RequestThreads::MayBegin(int64_t now_ns) const {
  if (running_ < at_once_) return true;
  return running_ < most_ && now_ns - last_begin_ns_ >= kPatienceNs;
}

// The first of the model that has the fewest requests running.
RequestThreads::Waiter RequestThreads::TakeNext() {
  auto next = waiting_.begin();
  for (auto it = waiting_.begin(); it != waiting_.end() && next->share->running > 0; ++it) {
    if (it->share->running < next->share->running) next = it;
  }
  const Waiter taken = *next;
  waiting_.erase(next);
  return taken;
}

void RequestThreads::Work() noexcept {
  pthread_setname_np(pthread_self(), "requests");
  KeepThreadInPlace();
  std::unique_lock<std::mutex> lock(mutex_);
  while (!ended_) {
    const int64_t now_ns = NowNs();
    if (waiting_.empty() || !MayBegin(now_ns)) {
      ++idle_;
      if (waiting_.empty() || watched_ || running_ >= most_) {
        const bool called = wake_.wait_for(lock, kIdleTime) == std::cv_status::no_timeout;
        --idle_;
        if (!called && waiting_.empty() && threads_ > at_once_ + 1) break;
      } else {
        watched_ = true;
        wake_.wait_for(lock, std::chrono::nanoseconds(last_begin_ns_ + kPatienceNs - now_ns));
        watched_ = false;
        --idle_;
      }
      continue;
    }
    const Waiter next = TakeNext();
    Source& source = *next.source;
    --source.calls_;
    ++source.inside_;
    ++next.share->running;
    ++running_;
    last_begin_ns_ = now_ns;
    // Whoever watched has to look at another time now, or there is nobody left to.
    if (!waiting_.empty()) {
      if (threads_ == running_ && threads_ < most_ + 1) StartThread().IgnoreError();
      wake_.notify_one();
    }
    lock.unlock();
    source.RunNext();
    lock.lock();
    --running_;
    --next.share->running;
    if (--source.inside_ == 0) left_.notify_all();
  }
  // Under the lock: whoever destroys this waits for it.
  if (--threads_ == 0) left_.notify_all();
}

}  // namespace processor
