// SPDX-License-Identifier: Apache-2.0
#include "src/host/request_log/sample_queue.h"

#include <cerrno>
#include <utility>

namespace processor {
namespace {

// Reverses a list, so that the oldest sample is first.
SampledRequest* Reversed(SampledRequest* list) {
  SampledRequest* reversed = nullptr;
  while (list != nullptr) {
    SampledRequest* const next = list->next;
    list->next = reversed;
    reversed = list;
    list = next;
  }
  return reversed;
}

}  // namespace

SampleQueue::SampleQueue(int64_t max_requests, int64_t max_bytes) : max_requests_(max_requests), max_bytes_(max_bytes) {
  sem_init(&wake_, /*pshared=*/0, 0);
}

SampleQueue::~SampleQueue() {
  for (SampledRequest* left = newest_.load(); left != nullptr;) delete std::exchange(left, left->next);
  sem_destroy(&wake_);
}

bool SampleQueue::HasRoom(size_t bytes) const {
  return requests_.load(std::memory_order_relaxed) < max_requests_ &&
         bytes_.load(std::memory_order_relaxed) + static_cast<int64_t>(bytes) <= max_bytes_;
}

bool SampleQueue::Push(std::unique_ptr<SampledRequest>* sample) {
  const size_t bytes = (*sample)->request.size();
  const auto more = static_cast<int64_t>(bytes);
  const bool fits = requests_.fetch_add(1) < max_requests_;
  if (!(bytes_.fetch_add(more) + more <= max_bytes_ && fits)) {
    Release(bytes);
    return false;
  }
  SampledRequest* const added = sample->release();
  SampledRequest* before = newest_.load(std::memory_order_relaxed);
  do {
    added->next = before;
  } while (!newest_.compare_exchange_weak(before, added, std::memory_order_release, std::memory_order_relaxed));
  // The thread that found the list empty wakes the writer for all that follow. `added` may have been freed already.
  if (before == nullptr) Wake();
  return true;
}

void SampleQueue::Wait() {
  while (sem_wait(&wake_) != 0 && errno == EINTR) {
  }
}

SampledRequest* SampleQueue::Take() { return Reversed(newest_.exchange(nullptr, std::memory_order_acquire)); }

void SampleQueue::Release(size_t bytes) {
  bytes_.fetch_sub(static_cast<int64_t>(bytes));
  requests_.fetch_sub(1);
}

}  // namespace processor
