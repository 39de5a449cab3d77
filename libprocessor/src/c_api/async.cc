// SPDX-License-Identifier: Apache-2.0
// The modern ABI's asynchronous requests, and batches, which wait for several requests.
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "processor/processor.h"
#include "src/base/byte_budget.h"
#include "src/c_api/boundary.h"
#include "src/c_api/completion.h"
#include "src/c_api/handle.h"
#include "src/c_api/request_work.h"
#include "src/c_api/result.h"
#include "src/runtime/model/model.h"

namespace {

using processor::Attempt;
using processor::GetModel;
using processor::Guard;
using processor::Model;

using AsyncRequest = processor::RequestWork<processor::AsyncWork>;

// Owns a copied request and the claim of its memory. A base class, so that it is constructed before what reads it.
struct RequestHolder {
  RequestHolder(const processor::CheckedRequest &request, processor::ByteClaim given)
      : claim(std::move(given)), owned(request) {}
  const processor::ByteClaim claim;
  const processor::OwnedRequest owned;
};

// A request that tells a target of its end.
class TargetWork : private RequestHolder, public AsyncRequest {
 public:
  TargetWork(const processor::CheckedRequest &request, const processor_target &target, processor::ByteClaim claim)
      : RequestHolder(request, std::move(claim)), AsyncRequest(owned.view(), /*lent=*/false), completion_(target) {
    may_end_early = true;
  }

  void Done(const absl::Status &status) noexcept override {
    if (status.ok()) {
      reader.result->timing = timing;
    } else {
      reader.result.reset();
    }
    completion_.Tell(status, std::move(reader.result));
  }

  void Answer(std::unique_ptr<processor_result> result) noexcept {
    completion_.Tell(absl::OkStatus(), std::move(result));
  }

 private:
  processor::Completion completion_;
};

absl::Status Start(const processor_model *handle, const processor_request *given, const processor_target *given_target,
                   uint64_t *request_id) {
  processor::CheckedRequest request;
  processor_target target;
  if (absl::Status s = processor::ReadRequest(given, &request); !s.ok()) return s;
  if (absl::Status s = processor::ReadTarget(given_target, &target); !s.ok()) return s;
  std::shared_ptr<Model> model;
  if (absl::Status s = GetModel(handle, &model); !s.ok()) return s;
  processor::ByteClaim claim(processor::ByteBudget::Use::kTensors);
  if (absl::Status s = claim.Add("request", processor::BytesToOwn(request)); !s.ok()) return s;
  auto work = std::make_shared<TargetWork>(request, target, std::move(claim));
  if (auto text = processor::SignatureIfAskedFor(request, *model)) {
    if (request_id != nullptr) *request_id = 0;
    work->Answer(std::move(text));
    return absl::OkStatus();
  }
  return model->Start(std::move(work), /*preferred_session=*/-1, request_id);
}

// Counts the requests of a batch that run, and waits until there are none.
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

// One request of a batch. The batch waits for it, so it may use the memory of the caller.
class BatchWork : public AsyncRequest {
 public:
  BatchWork(const processor::CheckedRequest &request, BatchWait *wait)
      : AsyncRequest(request, /*lent=*/true), wait_(wait) {}
  void Done(const absl::Status &status) noexcept override {
    status_ = status;
    wait_->CountDown();
  }

  absl::Status Take(processor_result **result) {
    if (!status_.ok()) return status_;
    reader.result->timing = timing;
    *result = reader.result.release();
    return absl::OkStatus();
  }
  void SetStatus(const absl::Status &status) { status_ = status; }

 private:
  BatchWait *const wait_;
  absl::Status status_;
};

struct BatchItem {
  std::shared_ptr<BatchWork> work;  // null if there was nothing to run
  absl::Status status;
};

// Starts request `index` of a batch or, if need be, runs it here.
// \return an error if the request was not started; OK if it runs, or if `result` holds its response.
absl::Status StartRequest(Model &model, const processor_request *requests, size_t index, BatchWait *wait,
                          std::shared_ptr<BatchWork> *work, processor_result **result) {
  processor::CheckedRequest request;
  if (absl::Status s = processor::ReadRequest(processor::ElementAt(requests, index), &request); !s.ok()) return s;
  if (auto text = processor::SignatureIfAskedFor(request, model)) {
    *result = text.release();
    return absl::OkStatus();
  }
  *work = std::make_shared<BatchWork>(request, wait);
  wait->CountUp();
  const absl::Status started =
      Attempt([&] { return model.Start(*work, static_cast<int>(index % INT32_MAX), nullptr); });
  if (started.ok()) return absl::OkStatus();
  wait->CountDown();
  // Inline requests do not wait in a queue: if it is full, the request runs on this thread.
  const bool here = absl::IsResourceExhausted(started) && model.config().execution == processor::Execution::kInline;
  (*work)->SetStatus(here ? Attempt([&] { return model.Run(**work); }) : started);
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
  // This must not return before every started request has ended: they use the batch and the memory of the caller.
  BatchWait wait;
  for (size_t i = 0; i < num_requests; ++i) {
    items[i].status = Attempt([&] { return StartRequest(*model, requests, i, &wait, &items[i].work, &results[i]); });
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
    return model->Cancel(request_id, absl::CancelledError("request: cancelled"));
  });
}

processor_status processor_model_run_batch(const processor_model *model, const processor_request *requests,
                                           size_t num_requests, processor_result **results, processor_error *errors) {
  return Guard(nullptr, [&] { return RunBatch(model, requests, num_requests, results, errors); });
}

}  // extern "C"
