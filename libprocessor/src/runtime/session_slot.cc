// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/session_slot.h"

#include <pthread.h>

#include <exception>

#include "absl/strings/str_cat.h"
#include "src/runtime/thread_starter.h"

namespace processor {

SessionSlot::SessionSlot(Options options)
    : options_(std::move(options)),
      intra_op_pool_(absl::StrCat(options_.name, "-intra"), options_.intra_op_threads, options_.cpus),
      cpus_(options_.cpus),
      placed_(options_.cpus) {}

SessionSlot::~SessionSlot() { Stop(absl::CancelledError("the model was freed")); }

absl::Status SessionSlot::Submit(std::shared_ptr<Task> task, bool beyond_limit) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (stopped_) return absl::CancelledError("the model is being freed");
  if (!beyond_limit && queue_.size() >= static_cast<size_t>(options_.max_queue_size)) {
    return absl::ResourceExhaustedError(absl::StrCat("session ", options_.index, ": ", queue_.size(),
                                                     " requests wait, expected fewer than max_queue_size"));
  }
  if (threads_.empty()) {
    // Room beforehand: a thread that has started could not be kept track of without.
    threads_.reserve(static_cast<size_t>(options_.worker_threads));
    placed_.Reserve(static_cast<size_t>(options_.worker_threads));
    try {
      StartServingThreads([this] {
        for (int i = 0; i < options_.worker_threads; ++i) threads_.emplace_back([this] { Work(); });
      });
    } catch (const std::exception& e) {
      // One thread is enough to go on with.
      if (threads_.empty()) return absl::ResourceExhaustedError(absl::StrCat("no thread to be had: ", e.what()));
    }
  }
  const int64_t priority = task->priority;
  queue_.emplace(std::make_pair(-priority, ++sequence_), std::move(task));
  lock.unlock();
  wake_.notify_one();
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

void SessionSlot::Stop(const absl::Status& status) {
  decltype(queue_) waiting;
  std::vector<std::thread> threads;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopped_ = true;
    waiting.swap(queue_);
    threads.swap(threads_);
  }
  wake_.notify_all();
  for (auto& [key, task] : waiting) task->Fail(status);
  for (std::thread& thread : threads) thread.join();
}

void SessionSlot::SetCpus(const CpuSet& cpus) {
  intra_op_pool_.placed().SetCpus(cpus);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    cpus_ = cpus;
    if (inter_op_pool_ != nullptr) inter_op_pool_->placed().SetCpus(cpus_);
    placed_.SetCpus(cpus_);
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

bool SessionSlot::HasRoom() const { return !options_.one_task_per_cpu || cpus_.empty() || running_ < cpus_.size(); }

void SessionSlot::Work() {
  pthread_setname_np(pthread_self(), options_.name.substr(0, 15).c_str());
  std::unique_lock<std::mutex> lock(mutex_);
  placed_.Join();
  for (;;) {
    wake_.wait(lock, [this] { return stopped_ || (!queue_.empty() && HasRoom()); });
    if (queue_.empty()) {
      placed_.Leave();
      return;
    }
    std::shared_ptr<Task> task = std::move(queue_.begin()->second);
    queue_.erase(queue_.begin());
    ++running_;
    lock.unlock();
    task->Run(options_.index);
    task.reset();  // its destructor must not run under the lock
    lock.lock();
    --running_;
  }
}

}  // namespace processor
