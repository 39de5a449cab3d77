// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/threads/request_threads.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>

#include "absl/strings/str_cat.h"
#include "src/runtime/stats/stats.h"
#include "src/runtime/threads/cpuset.h"
#include "src/runtime/threads/process_threads.h"
#include "src/runtime/threads/thread_starter.h"

namespace processor {
namespace {

// A request that has run for so long counts as slow.
constexpr int64_t kSlowNs = 20'000'000;
// How long threads stay that are not needed all the time.
constexpr auto kIdleTime = std::chrono::seconds(10);
// Limits of the number of threads beside slow requests: per CPU, and the least limit.
constexpr size_t kMostPerCpu = 8, kLeastMost = 32;

}  // namespace

RequestThreads& RequestThreads::OfProcess() {
  static auto* const threads = [] {
    const size_t cpus = std::max<size_t>(AllowedCpus().size(), 1);
    return new RequestThreads(cpus, std::max(kMostPerCpu * cpus, kLeastMost));
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
  // Starts one thread more than may begin: it notices when running requests turn slow.
  const size_t may_begin = recent_ < at_once_ ? at_once_ - recent_ : 0;
  if (threads_ - running_ < std::min(waiting_.size(), may_begin) + 1) {
    if (absl::Status s = StartThread(); !s.ok()) return s;
  }
  waiting_.push_back({source, share});
  ++source->calls_;
  wake_.notify_one();
  return absl::OkStatus();
}

void RequestThreads::Forget(Source* source) noexcept {
  std::unique_lock<std::mutex> lock(mutex_);
  waiting_.erase(std::remove_if(waiting_.begin(), waiting_.end(),
                                [source](const Waiter& waiter) { return waiter.source == source; }),
                 waiting_.end());
  source->calls_ = 0;
  left_.wait(lock, [source] { return source->inside_ == 0; });
}

// A model without a running request may always run one, however many others run.
bool RequestThreads::HasRoom(const Share& share) const {
  if (share.running == 0 || running_ < at_once_) return true;
  return running_ < most_ && share.running < most_ - running_;
}

// Returns the first request of the model with the fewest running requests; none if no model has room.
RequestThreads::Waiters::iterator RequestThreads::FindNext() {
  auto next = waiting_.begin();
  for (auto it = waiting_.begin(); it != waiting_.end() && next->share->running > 0; ++it) {
    if (it->share->running < next->share->running) next = it;
  }
  return next == waiting_.end() || HasRoom(*next->share) ? next : waiting_.end();
}

void RequestThreads::Count(Recent* begun) {
  begun->older = newest_;
  (newest_ == nullptr ? oldest_ : newest_->newer) = begun;
  newest_ = begun;
  ++recent_;
}

void RequestThreads::Uncount(Recent* recent) {
  (recent->older == nullptr ? oldest_ : recent->older->newer) = recent->newer;
  (recent->newer == nullptr ? newest_ : recent->newer->older) = recent->older;
  recent->counts = false;
  --recent_;
}

void RequestThreads::UncountSlow(int64_t now_ns) {
  while (oldest_ != nullptr && now_ns - oldest_->begin_ns >= kSlowNs) Uncount(oldest_);
}

void RequestThreads::Work() noexcept {
  pthread_setname_np(pthread_self(), "requests");
  KeepThreadInPlace();
  std::unique_lock<std::mutex> lock(mutex_);
  while (!ended_) {
    const int64_t now_ns = NowNs();
    UncountSlow(now_ns);
    const auto next = FindNext();
    const bool is_one = next != waiting_.end();
    if (is_one && recent_ >= at_once_ && !watched_) {
      watched_ = true;
      wake_.wait_for(lock, std::chrono::nanoseconds(oldest_->begin_ns + kSlowNs - now_ns));
      watched_ = false;
      continue;
    }
    if (!is_one || recent_ >= at_once_) {
      const bool called = wake_.wait_for(lock, kIdleTime) == std::cv_status::no_timeout;
      if (!called && waiting_.empty() && threads_ > at_once_ + 1) break;
      continue;
    }
    const Waiter taken = *next;
    waiting_.erase(next);
    Source& source = *taken.source;
    --source.calls_;
    ++source.inside_;
    ++taken.share->running;
    ++running_;
    Recent recent{now_ns};
    Count(&recent);
    // Another thread has to serve the waiting requests.
    if (!waiting_.empty()) {
      if (threads_ == running_) StartThread().IgnoreError();
      wake_.notify_one();
    }
    lock.unlock();
    source.RunNext();
    lock.lock();
    if (recent.counts) Uncount(&recent);
    --running_;
    --taken.share->running;
    if (--source.inside_ == 0) left_.notify_all();
  }
  // Done under the lock, because the destructor waits for it.
  if (--threads_ == 0) left_.notify_all();
}

}  // namespace processor
