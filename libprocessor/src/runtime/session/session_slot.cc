// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/session/session_slot.h"

#include <pthread.h>

#include <algorithm>
#include <exception>

#include "absl/strings/str_cat.h"
#include "src/runtime/requests/exception_status.h"
#include "src/runtime/threads/thread_starter.h"

namespace processor {
namespace {

// Visits that usually take less are brief. The kernel seldom moves a thread that runs, and if it does, the rest of one
// such request runs elsewhere.
constexpr int64_t kBriefNs = 100'000;

}  // namespace

SessionSlot::SessionSlot(Options options)
    : options_(std::move(options)),
      intra_op_pool_(absl::StrCat(options_.name, "-intra"), options_.intra_op_threads, options_.cpus),
      cpus_(options_.cpus),
      placed_(options_.cpus) {}

SessionSlot::~SessionSlot() {
  Refuse(absl::CancelledError("the model was freed"));
  Stop();
}

bool SessionSlot::Shares() const {
  if (options_.shared == nullptr || options_.worker_threads > 0) return false;
  return cpus_.empty() || cpus_.size() >= options_.shared->at_once();
}

size_t SessionSlot::ThreadsWanted() const {
  if (options_.worker_threads > 0) return static_cast<size_t>(options_.worker_threads);
  return Shares() ? 1 : std::max<size_t>(cpus_.size(), 1);
}

absl::Status SessionSlot::StartThreads() {
  const size_t wanted = ThreadsWanted();
  if (threads_.size() >= wanted) return absl::OkStatus();
  // Reserves memory first, because a started thread must be recorded.
  threads_.reserve(wanted);
  placed_.Reserve(wanted);
  try {
    StartServingThreads([this, wanted] {
      while (threads_.size() < wanted) threads_.emplace_back([this] { Work(); });
    });
  } catch (const std::exception& e) {
    // One thread is enough to serve.
    if (threads_.empty()) return absl::ResourceExhaustedError(absl::StrCat("no thread to be had: ", e.what()));
  }
  return absl::OkStatus();
}

absl::Status SessionSlot::Submit(const std::shared_ptr<Task>& task) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (stopped_) return absl::CancelledError("the model is being freed");
  if (queue_.size() >= static_cast<size_t>(options_.max_queue_size)) {
    return absl::ResourceExhaustedError(absl::StrCat("session ", options_.index, ": ", queue_.size(),
                                                     " requests wait, expected fewer than max_queue_size"));
  }
  const uint64_t sequence = ++sequence_;
  return Queue(std::move(lock), sequence, task);
}

absl::Status SessionSlot::Resume(const std::shared_ptr<Task>& task) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (stopped_) return absl::CancelledError("the model is being freed");
  const uint64_t sequence = ++resumed_;
  return Queue(std::move(lock), sequence, task);
}

absl::Status SessionSlot::Queue(std::unique_lock<std::mutex> lock, uint64_t sequence,
                                const std::shared_ptr<Task>& task) {
  const bool shares = Shares();
  if (!shares) {
    if (absl::Status s = StartThreads(); !s.ok()) return s;
  }
  const auto key = std::make_pair(-int64_t{task->priority}, sequence);
  queue_.emplace(key, task);
  if (shares) {
    // Runs under the lock, so that no other thread can take the task if it has to be removed again.
    absl::Status called = Attempt([this] { return options_.shared->Call(this, options_.share.get()); });
    if (!called.ok()) queue_.erase(key);
    return called;
  }
  Wake(std::move(lock));
  return absl::OkStatus();
}

absl::Status SessionSlot::Serve(const std::shared_ptr<Task>& task) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (stopped_) return absl::CancelledError("the model is being freed");
  if (absl::Status s = StartThreads(); !s.ok()) return s;
  serving_.push_back(task);
  Wake(std::move(lock));
  return absl::OkStatus();
}

std::shared_ptr<Task> SessionSlot::Remove(uint64_t id) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto it = queue_.begin(); it != queue_.end(); ++it) {
    if (it->second->id != id) continue;
    std::shared_ptr<Task> task = std::move(it->second);
    queue_.erase(it);
    return task;
  }
  return nullptr;
}

void SessionSlot::Refuse(const absl::Status& status) {
  decltype(queue_) waiting;
  decltype(serving_) serving;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopped_ = true;
    waiting.swap(queue_);
    serving.swap(serving_);
    calls_.fetch_add(1, std::memory_order_release);
  }
  wake_.notify_all();
  for (auto& [key, task] : waiting) task->Fail(status);
  for (auto& task : serving) task->Fail(status);
}

void SessionSlot::Stop() {
  std::vector<std::thread> threads;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
  if (options_.shared != nullptr) options_.shared->Forget(this);
}

void SessionSlot::SetCpus(const CpuSet& cpus) {
  intra_op_pool_.placed().SetCpus(cpus);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    cpus_ = cpus;
    if (inter_op_pool_ != nullptr) inter_op_pool_->placed().SetCpus(cpus_);
    placed_.SetCpus(cpus_);
    if (!queue_.empty() && !stopped_) {
      // A task that waits for threads of one kind may now be for those of the other.
      if (Shares()) {
        for (size_t i = 0; i < queue_.size(); ++i) options_.shared->Call(this, options_.share.get()).IgnoreError();
      } else {
        StartThreads().IgnoreError();
      }
    }
    calls_.fetch_add(1, std::memory_order_release);
  }
  wake_.notify_all();  // there may be room for more
}

PinnedPool& SessionSlot::inter_op_pool() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (inter_op_pool_ == nullptr) {
    inter_op_pool_ = std::make_unique<PinnedPool>(absl::StrCat(options_.name, "-inter"), options_.inter_op_threads,
                                                  cpus_, PinnedPool::Single::kOwn);
  }
  return *inter_op_pool_;
}

CpuSet SessionSlot::cpus() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return cpus_;
}

size_t SessionSlot::queued() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return queue_.size();
}

size_t SessionSlot::places() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return Shares() ? options_.shared->at_once() : ThreadsWanted();
}

bool SessionSlot::HasRoom() const {
  if (!Shares() && running_ >= ThreadsWanted()) return false;
  return !options_.one_task_per_cpu || cpus_.empty() || running_ < cpus_.size();
}

bool SessionSlot::MaySpin() const { return !stopped_ && !Shares() && running_ + spinning_ < cpus_.size(); }

// A thread that spins looks at the queue before it sleeps, so it needs no call if it is late.
void SessionSlot::Wake(std::unique_lock<std::mutex> lock) noexcept {
  if (waiting_ == 0) return;
  called_ns_ = NowNs();
  const bool spins = spinning_ > 0, sleeps = queue_.size() + serving_.size() > spinning_;
  lock.unlock();
  if (spins) calls_.fetch_add(1, std::memory_order_release);
  if (sleeps) wake_.notify_one();
}

template <typename Ready>
void SessionSlot::Wait(std::unique_lock<std::mutex>* lock, AdaptiveSpin* spin, const Ready& ready) {
  if (ready()) return;
  const int64_t begin_ns = NowNs();
  ++waiting_;
  if (MaySpin() && spin->Pays()) {
    ++spinning_;
    const uint32_t seen = calls_.load(std::memory_order_relaxed);
    lock->unlock();
    spin->Spin([this, seen] { return calls_.load(std::memory_order_acquire) != seen; });
    lock->lock();
    --spinning_;
  }
  wake_.wait(*lock, ready);
  --waiting_;
  spin->Learn(std::max<int64_t>(called_ns_ - begin_ns, 0));
}

bool SessionSlot::TakePlace() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (stopped_ || !queue_.empty() || !serving_.empty() || !HasRoom()) return false;
  ++running_;
  return true;
}

void SessionSlot::GivePlaceBack() noexcept {
  std::unique_lock<std::mutex> lock(mutex_);
  --running_;
  if (!queue_.empty()) Wake(std::move(lock));
}

SessionSlot::Visit::Visit(SessionSlot* slot) : slot_(*slot) {
  if (!slot_.TakePlace()) return;
  Attempt([this] {
    begun_ = slot_.placed_.BeginVisit(slot_.usual_visit_ns_.load(std::memory_order_relaxed) < kBriefNs, &place_);
    return absl::OkStatus();
  }).IgnoreError();
  if (begun_) {
    begin_ns_ = NowNs();
  } else {
    slot_.GivePlaceBack();
  }
}

SessionSlot::Visit::~Visit() {
  if (!begun_) return;
  // A moving average. If threads overwrite each other's, nothing is lost but a sample.
  std::atomic<int64_t>& usual_ns = slot_.usual_visit_ns_;
  const int64_t ran_ns = NowNs() - begin_ns_, before_ns = usual_ns.load(std::memory_order_relaxed);
  usual_ns.store(before_ns == INT64_MAX ? ran_ns : before_ns + (ran_ns - before_ns) / 8, std::memory_order_relaxed);
  slot_.placed_.EndVisit(place_);
  slot_.GivePlaceBack();
}

void SessionSlot::Work() {
  pthread_setname_np(pthread_self(), options_.name.substr(0, 15).c_str());
  std::unique_lock<std::mutex> lock(mutex_);
  placed_.Join();
  const auto may_take = [this] { return !queue_.empty() && !Shares() && HasRoom(); };
  AdaptiveSpin spin;
  for (;;) {
    Wait(&lock, &spin, [&] { return stopped_ || !serving_.empty() || may_take(); });
    std::shared_ptr<Task> task;
    if (!serving_.empty()) {
      task = std::move(serving_.front());
      serving_.pop_front();
    } else if (may_take()) {
      task = std::move(queue_.begin()->second);
      queue_.erase(queue_.begin());
    } else {
      placed_.Leave();
      return;
    }
    ++running_;
    lock.unlock();
    task->Run(options_.index);
    task.reset();  // its destructor must not run under the lock
    lock.lock();
    --running_;
  }
}

void SessionSlot::RunNext() noexcept {
  std::shared_ptr<Task> task;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    // One of its own threads may have taken it.
    if (queue_.empty()) return;
    task = std::move(queue_.begin()->second);
    queue_.erase(queue_.begin());
  }
  task->Run(options_.index);
}

}  // namespace processor
