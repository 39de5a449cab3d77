// SPDX-License-Identifier: Apache-2.0
#include "src/host/requests/shadow_lane.h"

#include <pthread.h>
#include <sched.h>

#include <limits>
#include <utility>

#include "src/runtime/requests/exception_status.h"
#include "src/runtime/threads/lone_thread.h"
#include "src/runtime/threads/process_threads.h"

namespace processor {
namespace {

// Keeps the scores; nobody reads the response.
class ShadowCall : public HostCall {
 public:
  using HostCall::HostCall;
  absl::Status Encode(const ModelVersion&, const DecodedRequest&, std::vector<tensorflow::Tensor>& outputs) override {
    scores = FirstFloat(outputs);
    return absl::OkStatus();
  }
  tensorflow::Tensor scores;
};

}  // namespace

tensorflow::Tensor FirstFloat(const std::vector<tensorflow::Tensor>& outputs) {
  for (const tensorflow::Tensor& output : outputs) {
    if (output.dtype() == tensorflow::DT_FLOAT) return output;
  }
  return tensorflow::Tensor(tensorflow::DT_FLOAT, tensorflow::TensorShape({0}));
}

absl::Span<const float> Floats(const tensorflow::Tensor& tensor) {
  if (!tensor.IsInitialized()) return {};
  return {static_cast<const float*>(tensor.data()), static_cast<size_t>(tensor.NumElements())};
}

ShadowLane::~ShadowLane() {
  Stop();
  if (thread_.joinable()) thread_.join();
}

void ShadowLane::Offer(const HostCall& call) noexcept {
  // A failure, such as a lack of memory or threads, only counts as a dropped request.
  if (num_queued_.load(std::memory_order_relaxed) >= kCapacity ||
      queued_bytes_.load(std::memory_order_relaxed) + call.request().data.size() > kMaxBytes) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  const absl::Status status = Attempt([&] {
    auto copy = std::make_unique<Copy>();
    const HostRequest& request = call.request();
    copy->data = request.data;
    copy->request.data = copy->data;
    copy->request.priority = std::numeric_limits<int32_t>::min();
    copy->request.header_length = request.header_length;
    copy->method = call.method;
    copy->scores = call.scores;
    copy->epoch = call.answer.timing.epoch;
    Add(std::move(copy));
    return absl::OkStatus();
  });
  if (!status.ok()) dropped_.fetch_add(1, std::memory_order_relaxed);
}

void ShadowLane::Add(std::unique_ptr<Copy> copy) {
  std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  const size_t bytes = copy->data.size();
  if (!lock.owns_lock() || stopped_ || queue_.size() >= kCapacity || queued_bytes_.load() + bytes > kMaxBytes) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  queue_.push_back(std::move(copy));
  Count(queue_.size(), queued_bytes_.load() + bytes);
  if (!thread_.joinable()) {
    ended_ = false;
    try {
      // A thread started here would inherit the CPUs of a session.
      starter_.Run([this] { thread_ = std::thread([this] { Work(); }); });
    } catch (...) {
      ended_ = true;
      queue_.clear();
      Count(0, 0);
      throw;
    }
  }
  lock.unlock();
  wake_.notify_one();
}

void ShadowLane::Count(size_t requests, size_t bytes) noexcept {
  num_queued_.store(requests, std::memory_order_relaxed);
  queued_bytes_.store(bytes, std::memory_order_relaxed);
}

void ShadowLane::Stop() noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  stopped_ = true;
  queue_.clear();
  Count(0, 0);
  wake_.notify_all();
}

void ShadowLane::Work() noexcept {
  pthread_setname_np(pthread_self(), "shadow");
  KeepThreadInPlace();
  const sched_param none{};
  sched_setscheduler(0, SCHED_IDLE, &none);
  ComputeAlone();
  // A thread that waits for a lock waits also while the lock's holder has no CPU. So this thread only runs the model:
  // work under locks that requests of clients and the control thread use is left to a thread of the usual scheduling
  // class, which also starts threads of the shadow version, as these may serve clients later.
  const StartThreadsElsewhere elsewhere(&starter_);
  Job job;
  for (;;) {
    const auto on_starter = [&](void (ShadowLane::*work)(Job*)) {
      return Attempt([&] { return starter_.Run([&] { (this->*work)(&job); }), absl::OkStatus(); });
    };
    if (!on_starter(&ShadowLane::Take).ok()) continue;  // no memory: this mirrored request is lost
    if (job.copy == nullptr) break;
    job.status = Attempt([&] { return Run(*job.copy, *job.servable); });
    on_starter(&ShadowLane::Record).IgnoreError();
  }
  ended_ = true;
}

// Returns the next mirrored request and its version; none if the lane has been stopped.
void ShadowLane::Take(Job* job) {
  *job = Job();
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stopped_ || !queue_.empty(); });
    if (stopped_) return;
    std::unique_ptr<Copy> next = std::move(queue_.front());
    queue_.pop_front();
    Count(queue_.size(), queued_bytes_.load() - next->data.size());
    lock.unlock();
    job->servable = IsCurrent(*next) ? find_() : nullptr;
    if (job->servable != nullptr) {
      job->copy = std::move(next);
      return;
    }
    // The version is not ready yet or has ended, which is not a failure of it; or the scores are of another epoch.
    dropped_.fetch_add(1, std::memory_order_relaxed);
    lock.lock();
  }
}

// In idle time the queue may take minutes. A baseline that has left an epoch must no longer be judged by its scores.
bool ShadowLane::IsCurrent(const Copy& copy) const {
  if (copy.epoch < 0) return true;
  const std::shared_ptr<const Servable> baseline = find_baseline_();
  if (baseline == nullptr) return false;
  const std::shared_ptr<ModelVersion> version = baseline->version->model().version();
  return version != nullptr && version->Pin().epoch == copy.epoch;
}

void ShadowLane::Record(Job* job) {
  const absl::Status& status = job->status;
  const Copy& copy = *job->copy;
  job->servable.reset();
  (status.ok() ? compared_ : failed_).fetch_add(1, std::memory_order_relaxed);
  std::lock_guard<std::mutex> lock(comparison_mutex_);
  if (status.ok()) {
    comparison_.Add(Floats(copy.scores), Floats(copy.answered));
  } else {
    comparison_.AddError();
  }
}

absl::Status ShadowLane::Run(Copy& copy, const Servable& servable) {
  ShadowCall call(copy.request);
  call.method = copy.method;
  call.alone = true;  // this thread gets idle time only, so it must not lead a batch with other requests in it
  if (absl::Status s = servable.version->model().Run(call); !s.ok()) return s;
  copy.answered = std::move(call.scores);
  return absl::OkStatus();
}

nlohmann::ordered_json ShadowLane::Json() const {
  nlohmann::ordered_json json;
  {
    std::lock_guard<std::mutex> lock(comparison_mutex_);
    json = comparison_.Json();
  }
  json["dropped"] = dropped();
  return json;
}

}  // namespace processor
