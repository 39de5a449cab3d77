// SPDX-License-Identifier: Apache-2.0
#include "src/c_api/completion.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include "src/c_api/boundary.h"

namespace processor {
namespace {

// Moves a list of one completion to the queue, without allocating memory.
void Push(const processor_queue &queue, std::list<processor_completion> &completion) noexcept {
  std::lock_guard<std::mutex> lock(queue.mutex);
  queue.completions.splice(queue.completions.end(), completion);
  // The descriptor is readable from the first completion until the last has been taken.
  if (queue.completions.size() == 1) {
    const uint64_t one = 1;
    (void)!write(queue.fd, &one, sizeof one);
  }
}

}  // namespace

absl::Status ReadTarget(const processor_target *src, processor_target *dst) {
  if (absl::Status s = ReadStruct(src, "target", dst); !s.ok()) return s;
  if (dst->done != nullptr || dst->queue != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError("target: neither done nor queue, expected one");
}

void Completion::Tell(const absl::Status &status, std::unique_ptr<processor_result> result) noexcept {
  processor_completion &completion = completion_.front();
  Report(status, &completion.error);
  completion.tag = target_.tag;
  completion.result = result.release();
  if (target_.done != nullptr) {
    target_.done(target_.user_data, completion.tag, completion.result, &completion.error);
  } else {
    Push(*target_.queue, completion_);
  }
}

}  // namespace processor

extern "C" {

processor_status processor_queue_create(processor_queue **queue, processor_error *error) {
  return processor::Guard(error, [&]() -> absl::Status {
    if (queue == nullptr) return absl::InvalidArgumentError("queue: NULL, expected where to put it");
    *queue = nullptr;
    const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0) return absl::ResourceExhaustedError("queue: no file descriptor to be had");
    auto made = std::make_unique<processor_queue>();
    made->fd = fd;
    *queue = made.release();
    return absl::OkStatus();
  });
}

int processor_queue_fd(const processor_queue *queue) { return queue == nullptr ? -1 : queue->fd; }

size_t processor_queue_next(const processor_queue *queue, processor_completion *completions, size_t capacity) {
  if (queue == nullptr || completions == nullptr) return 0;
  std::lock_guard<std::mutex> lock(queue->mutex);
  size_t count = 0;
  while (count < capacity && !queue->completions.empty()) {
    completions[count++] = queue->completions.front();
    queue->completions.pop_front();
  }
  if (queue->completions.empty() && count > 0) {
    uint64_t unused;
    (void)!read(queue->fd, &unused, sizeof unused);
  }
  return count;
}

void processor_queue_free(processor_queue *queue) {
  if (queue == nullptr) return;
  for (processor_completion &completion : queue->completions) processor_result_free(completion.result);
  close(queue->fd);
  delete queue;
}

}  // extern "C"
