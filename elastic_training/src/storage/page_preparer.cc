// SPDX-License-Identifier: Apache-2.0
#include "src/storage/page_preparer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <thread>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace elastic_training {
namespace {

constexpr size_t kMostWaiting = 256;

bool Within(const char* address, const char* begin, size_t bytes) {
  return address >= begin && address < begin + bytes;
}

}  // namespace

PagePreparer& PagePreparer::OfProcess() {
  static PagePreparer* const preparer = new PagePreparer;
  return *preparer;
}

void PagePreparer::Prepare(char* begin, size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (started_ == 0) {
    try {
      std::thread([this] { Run(); }).detach();
    } catch (const std::system_error&) {
      return;
    }
    started_ = getpid();
  }
  if (started_ != getpid() || waiting_.size() >= kMostWaiting) return;
  waiting_.push_back({begin, bytes});
  changed_.notify_all();
}

void PagePreparer::Forget(const char* begin, size_t bytes) {
  std::unique_lock<std::mutex> lock(mutex_);
  waiting_.erase(std::remove_if(waiting_.begin(), waiting_.end(),
                                [&](const Range& range) { return Within(range.begin, begin, bytes); }),
                 waiting_.end());
  if (started_ != getpid()) return;
  changed_.wait(lock, [&] { return !Within(current_.begin, begin, bytes); });
}

void PagePreparer::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return !waiting_.empty(); });
    current_ = waiting_.front();
    waiting_.pop_front();
    lock.unlock();
    // Kernels before 5.14 refuse this; then rows clear their pages themselves.
    madvise(current_.begin, current_.bytes, MADV_POPULATE_WRITE);
    lock.lock();
    current_ = {nullptr, 0};
    changed_.notify_all();
  }
}

}  // namespace elastic_training
