// SPDX-License-Identifier: Apache-2.0
// The modern ABI's requests that nobody waits for, queues of completions, and batches, which wait for several.
#include <sys/eventfd.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
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
  mutable std::deque<processor_completion> completions;
};

namespace {

using processor::GetModel;
using processor::Guard;
using processor::Model;

void Push(processor_queue &queue, const processor_completion &completion) {
  std::lock_guard<std::mutex> lock(queue.mutex);
  queue.completions.push_back(completion);
  // Readable from the first completion until the last has been taken.
  if (queue.completions.size() == 1) {
    const uint64_t one = 1;
    (void)!write(queue.fd, &one, sizeof one);
  }
}

class TargetWork : public processor::AsyncWork {
 public:
  TargetWork(const processor_request &request, const processor_target &target)
      : owned_(request), reader_(owned_.view(), /*lent=*/false), target_(target) {
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

  void Done(const absl::Status &status) override {
    processor_completion completion{};
    completion.tag = target_.tag;
    if (status.ok()) {
      reader_.result->timing = timing;
      completion.result = reader_.result.release();
    } else {
      processor::Report(status, &completion.error);
    }
    Deliver(completion);
  }

  void Answer(std::unique_ptr<processor_result> result) {
    processor_completion completion{};
    completion.tag = target_.tag;
    completion.result = result.release();
    Deliver(completion);
  }

 private:
  void Deliver(const processor_completion &completion) {
    if (target_.done != nullptr) {
      target_.done(target_.user_data, completion.tag, completion.result, &completion.error);
    } else {
      Push(*target_.queue, completion);
    }
  }

  const processor::OwnedRequest owned_;
  processor::RequestReader reader_;
  const processor_target target_;
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

// Counts down the requests of a batch.
class BatchWait {
 public:
  explicit BatchWait(size_t count) : left_(count) {}
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
  size_t left_;
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
  void Done(const absl::Status &status) override {
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

absl::Status RunBatch(const processor_model *handle, const processor_request *requests, size_t num_requests,
                      processor_result **results, processor_error *errors) {
  if (num_requests > 0 && (requests == nullptr || results == nullptr)) {
    return absl::InvalidArgumentError("batch: requests or results NULL");
  }
  std::shared_ptr<Model> model;
  if (absl::Status s = GetModel(handle, &model); !s.ok()) {
    for (size_t i = 0; i < num_requests; ++i) {
      results[i] = nullptr;
      if (errors != nullptr) processor::Report(s, &errors[i]);
    }
    return s;
  }
  std::vector<std::shared_ptr<BatchWork>> works(num_requests);
  std::vector<absl::Status> statuses(num_requests);
  BatchWait wait(num_requests);
  for (size_t i = 0; i < num_requests; ++i) {
    results[i] = nullptr;
    processor_request request;
    statuses[i] = processor::ReadRequest(processor::ElementAt(requests, i), &request);
    if (statuses[i].ok()) {
      if (auto text = processor::AnswerEmptyRequest(request, *model)) {
        results[i] = text.release();
      } else {
        works[i] = std::make_shared<BatchWork>(request, &wait);
        const absl::Status started = model->Start(works[i], static_cast<int>(i % INT32_MAX), nullptr);
        if (started.ok()) continue;
        // Inline requests know no queue: what finds it full runs here, as it would alone.
        const bool here =
            absl::IsResourceExhausted(started) && model->config().execution == processor::Execution::kInline;
        works[i]->Settle(here ? model->Run(*works[i]) : started);
      }
    }
    wait.CountDown();
  }
  wait.Wait();
  absl::Status first;
  for (size_t i = 0; i < num_requests; ++i) {
    if (works[i] != nullptr) statuses[i] = works[i]->Take(&results[i]);
    if (errors != nullptr) errors[i].code = PROCESSOR_OK;
    processor::Report(statuses[i], errors == nullptr ? nullptr : &errors[i]);
    if (first.ok()) first = statuses[i];
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
