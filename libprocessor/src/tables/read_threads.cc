// SPDX-License-Identifier: Apache-2.0
#include "src/tables/read_threads.h"

#include <pthread.h>

#include <system_error>
#include <thread>
#include <utility>

namespace processor {

ReadThreads& ReadThreads::Global() {
  static auto* const threads = new ReadThreads;
  return *threads;
}

ReadThreads::ReadThreads() {
  try {
    for (; started_ < kThreads; ++started_) {
      std::thread thread([this] { Run(); });
      pthread_setname_np(thread.native_handle(), "table-reads");
      thread.detach();
    }
  } catch (const std::system_error&) {
    // As many as the system permits.
  }
}

void ReadThreads::Read(absl::Span<ReadPiece> pieces) {
  Batch batch;
  batch.left = pieces.size();
  std::unique_lock<std::mutex> lock(mutex_);
  for (ReadPiece& piece : pieces) queue_.push_back({&piece, &batch, nullptr});
  wanted_.notify_all();
  // Without threads, this one reads.
  while (batch.left > 0 && started_ == 0) ReadNext(&lock);
  batch.done.wait(lock, [&] { return batch.left == 0; });
}

void ReadThreads::Start(std::shared_ptr<StartedReads> reads) {
  std::unique_lock<std::mutex> lock(mutex_);
  reads->left_ = reads->pieces.size();
  for (ReadPiece& piece : reads->pieces) queue_.push_back({&piece, nullptr, reads});
  wanted_.notify_all();
  while (started_ == 0 && !queue_.empty()) ReadNext(&lock);
}

void ReadThreads::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    wanted_.wait(lock, [this] { return !queue_.empty(); });
    ReadNext(&lock);
  }
}

void ReadThreads::ReadNext(std::unique_lock<std::mutex>* lock) {
  Entry entry = std::move(queue_.front());
  queue_.pop_front();
  lock->unlock();
  entry.piece->got = 0;
  ReadRest(entry.piece);
  lock->lock();
  if (entry.batch != nullptr) {
    if (--entry.batch->left == 0) entry.batch->done.notify_one();
    return;
  }
  const bool is_last = --entry.started->left_ == 0;
  lock->unlock();
  if (is_last) entry.started->Finished();
  entry.started.reset();  // its destructor must not run under the lock
  lock->lock();
}

}  // namespace processor
