// SPDX-License-Identifier: Apache-2.0
// The modern ABI's requests that nobody waits for, queues of completions, and batches, which wait for several.
#include <sys/eventfd.h>
#include <unistd.h>

#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "processor/processor.h"
#include "src/c_api/boundary.h"
#include "src/c_api/handle.h"
#include "src/c_api/request_work.h"
#include "src/c_api/result.h"
#include "src/runtime/model.h"

struct processor_queue {
  int fd = -1;
  mutable std::mutex mutex;
  mutable std::list<processor_completion> completions;
};

namespace {

using processor::Attempt;
using processor::GetModel;
using processor::Guard;
using processor::Model;

// Moves a list of one completion to the queue. It comes from threads where nobody could do anything about a failure, so
// it allocates nothing.
void Push(const processor_queue &queue, std::list<processor_completion> &completion) noexcept {
  std::lock_guard<std::mutex> lock(queue.mutex);
  queue.completions.splice(queue.completions.end(), completion);
  // Readable from the first completion until the last has been taken.
  if (queue.completions.size() == 1) {
    const uint64_t one = 1;
    (void)!write(queue.fd, &one, sizeof one);
  }
}

class TargetWork : public processor::AsyncWork {
 public:
  TargetWork(const processor_request &request, const processor_target &target)
      : owned_(request), reader_(owned_.view(), /*lent=*/false), target_(target), completion_(1) {
    priority = request.priority;
    deadline_us = request.deadline_us;
  }

  absl::Status Decode(const processor::ModelVersion &version, processor::DecodedRequest *request) override {
    return reader_.Decode(version, request);
  }
  absl::Status Encode(const processor::ModelVersion &version, const processor::DecodedRequest &request,
                      std::vector<tensorflow::Tensor> &outputs) override {
    return reader_.Encode(version, request, outputs);
  }

  void Done(const absl::Status &status) noexcept override {
    if (status.ok()) {
      reader_.result->timing = timing;
    } else {
      processor::Report(status, &completion_.front().error);
      reader_.result.reset();
    }
    Answer(std::move(reader_.result));
  }

  void Answer(std::unique_ptr<processor_result> result) noexcept {
    processor_completion &completion = completion_.front();
    completion.tag = target_.tag;
    completion.result = result.release();
    if (target_.done != nullptr) {
      target_.done(target_.user_data, completion.tag, completion.result, &completion.error);
    } else {
      Push(*target_.queue, completion_);
    }
  }

 private:
  const processor::OwnedRequest owned_;
  processor::RequestReader reader_;
  const processor_target target_;
  std::list<processor_completion> completion_;  // one, made before there is anything to tell
};

absl::Status Start(const processor_model *handle, const processor_request *given, const processor_target *given_target,
                   uint64_t *request_id) {
  processor_request request;
  processor_target target;
  if (absl::Status s = processor::ReadRequest(given, &request); !s.ok()) return s;
  if (absl::Status s = processor::ReadStruct(given_target, "target", &target); !s.ok()) return s;
  if (target.done == nullptr && target.queue == nullptr) {
    return absl::InvalidArgumentError("target: neither done nor queue, expected one");
  }
  std::shared_ptr<Model> model;
  if (absl::Status s = GetModel(handle, &model); !s.ok()) return s;
  auto work = std::make_shared<TargetWork>(request, target);
  if (auto text = processor::AnswerEmptyRequest(request, *model)) {
    if (request_id != nullptr) *request_id = 0;
    work->Answer(std::move(text));
    return absl::OkStatus();
  }
  return model->Start(std::move(work), /*preferred_session=*/-1, request_id);
}

// Counts the requests of a batch that have been started and have not ended.
class BatchWait {
 public:
  void CountUp() {
    std::lock_guard<std::mutex> lock(mutex_);
    ++left_;
  }
  void CountDown() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (--left_ == 0) done_.notify_all();
  }
  void Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [this] { return left_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  size_t left_ = 0;
};

// One request of a batch. The batch waits for it, so that it may use what the caller lent.
class BatchWork : public processor::AsyncWork {
 public:
  BatchWork(const processor_request &request, BatchWait *wait) : reader_(request, /*lent=*/true), wait_(wait) {
    priority = request.priority;
    deadline_us = request.deadline_us;
  }
  absl::Status Decode(const processor::ModelVersion &version, processor::DecodedRequest *request) override {
    return reader_.Decode(version, request);
  }
  absl::Status Encode(const processor::ModelVersion &version, const processor::DecodedRequest &request,
                      std::vector<tensorflow::Tensor> &outputs) override {
    return reader_.Encode(version, request, outputs);
  }
  void Done(const absl::Status &status) noexcept override {
    status_ = status;
    wait_->CountDown();
  }

  absl::Status Take(processor_result **result) {
    if (!status_.ok()) return status_;
    reader_.result->timing = timing;
    *result = reader_.result.release();
    return absl::OkStatus();
  }
  void Settle(const absl::Status &status) { status_ = status; }

 private:
  processor::RequestReader reader_;
  BatchWait *const wait_;
  absl::Status status_;
};

struct BatchItem {
  std::shared_ptr<BatchWork> work;  // null if there was nothing to run
  absl::Status status;
};

// Starts request `index` of a batch or, if need be, runs it here.
// \return why there is nothing to wait for and nothing to take, unless it was answered at once.
absl::Status StartOne(Model &model, const processor_request *requests, size_t index, BatchWait *wait,
                      std::shared_ptr<BatchWork> *work, processor_result **result) {
  processor_request request;
  if (absl::Status s = processor::ReadRequest(processor::ElementAt(requests, index), &request); !s.ok()) return s;
  if (auto text = processor::AnswerEmptyRequest(request, model)) {
    *result = text.release();
    return absl::OkStatus();
  }
  *work = std::make_shared<BatchWork>(request, wait);
  wait->CountUp();
  const absl::Status started =
      Attempt([&] { return model.Start(*work, static_cast<int>(index % INT32_MAX), nullptr); });
  if (started.ok()) return absl::OkStatus();
  wait->CountDown();
  // Inline requests know no queue: what finds it full runs here, as it would alone.
  const bool here = absl::IsResourceExhausted(started) && model.config().execution == processor::Execution::kInline;
  (*work)->Settle(here ? Attempt([&] { return model.Run(**work); }) : started);
  return absl::OkStatus();
}

absl::Status RunBatch(const processor_model *handle, const processor_request *requests, size_t num_requests,
                      processor_result **results, processor_error *errors) {
  if (num_requests > 0 && (requests == nullptr || results == nullptr)) {
    return absl::InvalidArgumentError("batch: requests or results NULL");
  }
  for (size_t i = 0; i < num_requests; ++i) results[i] = nullptr;
  std::shared_ptr<Model> model;
  std::vector<BatchItem> items;
  const absl::Status ready = Attempt([&] {
    absl::Status s = GetModel(handle, &model);
    if (s.ok()) items.resize(num_requests);
    return s;
  });
  if (!ready.ok()) {
    for (size_t i = 0; errors != nullptr && i < num_requests; ++i) processor::Report(ready, &errors[i]);
    return ready;
  }
  // Nothing may leave before the last of those that were started has ended: they use the batch, and what the caller lent.
  BatchWait wait;
  for (size_t i = 0; i < num_requests; ++i) {
    items[i].status = Attempt([&] { return StartOne(*model, requests, i, &wait, &items[i].work, &results[i]); });
  }
  wait.Wait();
  absl::Status first;
  for (size_t i = 0; i < num_requests; ++i) {
    absl::Status status = std::move(items[i].status);
    if (status.ok() && items[i].work != nullptr) status = items[i].work->Take(&results[i]);
    if (errors != nullptr) errors[i].code = PROCESSOR_OK;
    processor::Report(status, errors == nullptr ? nullptr : &errors[i]);
    if (first.ok()) first = std::move(status);
  }
  return first;
}

}  // namespace

extern "C" {

processor_status processor_model_run_async(const processor_model *model, const processor_request *request,
                                           const processor_target *target, uint64_t *request_id,
                                           processor_error *error) {
  return Guard(error, [&] { return Start(model, request, target, request_id); });
}

processor_status processor_model_cancel(const processor_model *handle, uint64_t request_id, processor_error *error) {
  return Guard(error, [&]() -> absl::Status {
    std::shared_ptr<Model> model;
    if (absl::Status s = GetModel(handle, &model); !s.ok()) return s;
    return model->Cancel(request_id, absl::CancelledError("request: cancelled before it ran"));
  });
}

processor_status processor_model_run_batch(const processor_model *model, const processor_request *requests,
                                           size_t num_requests, processor_result **results, processor_error *errors) {
  return Guard(nullptr, [&] { return RunBatch(model, requests, num_requests, results, errors); });
}

processor_status processor_queue_create(processor_queue **queue, processor_error *error) {
  return Guard(error, [&]() -> absl::Status {
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
