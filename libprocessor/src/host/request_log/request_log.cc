// SPDX-License-Identifier: Apache-2.0
#include "src/host/request_log/request_log.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/log.h"
#include "src/codec/prediction_log.h"
#include "src/codec/protocols.h"
#include "src/runtime/requests/exception_status.h"
#include "src/runtime/stats/stats.h"
#include "src/runtime/threads/process_threads.h"

namespace processor {
namespace {

constexpr int64_t kRetryNs = 1000000000;
constexpr int kLeastPriority = 19;

// A request without an output filter gets all outputs of its version: none is named, as versions may have others.
DecodedRequest WithoutDefaultFilter(const DecodedRequest& request) {
  DecodedRequest plain = request;
  const auto outputs = static_cast<int>(request.signature->outputs().size());
  bool all = request.fetch_keys.empty() && static_cast<int>(request.fetches.size()) == outputs;
  for (int i = 0; all && i < outputs; ++i) all = request.fetches[static_cast<size_t>(i)] == i;
  if (all) plain.fetches.clear();
  return plain;
}

absl::Status PredictRequestFor(const Method& method, std::string_view bytes, const DecodedRequest& request,
                               std::string_view model, Buffer* dst) {
  if (method.codec == TfServingCodec()) return dst->Assign(bytes) ? absl::OkStatus() : NoMemoryStatus();
  // MultiInference runs several signatures.
  if (!request.next.empty()) return absl::UnimplementedError("request log: no request of Predict");
  return EncodePredictRequest(WithoutDefaultFilter(request), model, dst);
}

}  // namespace

void ModelLog::Configure(const RequestLogSettings& settings) {
  max_bytes_ = settings.max_bytes;
  max_files_ = settings.max_files;
  sample_ = settings.sample;
}

std::unique_ptr<SampledRequest> ModelLog::Copy(const Method& method, std::string_view bytes,
                                               const DecodedRequest& request, int64_t version) noexcept {
  std::unique_ptr<SampledRequest> copy;
  const int sample = sample_.load(std::memory_order_relaxed);
  if (sample == 0) return nullptr;  // the log was switched off meanwhile
  const absl::Status status = Attempt([&]() -> absl::Status {
    // A sample that would be dropped is not copied.
    if (!queue_->HasRoom(bytes.size())) return NoMemoryStatus();
    auto made = std::make_unique<SampledRequest>();
    if (absl::Status s = PredictRequestFor(method, bytes, request, model_, &made->request); !s.ok()) return s;
    made->log = shared_from_this();
    made->version = version;
    made->sample = sample;
    copy = std::move(made);
    return absl::OkStatus();
  });
  if (absl::IsUnimplemented(status)) {
    unsupported_.fetch_add(1, std::memory_order_relaxed);
  } else if (!status.ok()) {
    Drop();
  }
  return copy;
}

void ModelLog::Offer(std::unique_ptr<SampledRequest> sampled) noexcept {
  if (sampled != nullptr && !queue_->Push(&sampled)) Drop();
}

absl::Status ModelLog::Append(const SampledRequest& sampled) {
  LoggedFrom from;
  from.model = model_;
  from.version = sampled.version;
  from.sampling_rate = static_cast<double>(sampled.sample) / kRoutingBuckets;
  const std::string record = EncodePredictionLog({sampled.request.data(), sampled.request.size()}, from);
  return folder_.Append(record, max_bytes_.load(), max_files_.load());
}

void ModelLog::Write(const SampledRequest& sampled) noexcept {
  // A full disk is not tried for each request.
  if (NowNs() < retry_at_ns_) return Drop();
  const absl::Status status = Attempt([&] { return Append(sampled); });
  if (status.ok()) {
    written_.fetch_add(1, std::memory_order_relaxed);
  } else {
    Drop();
    retry_at_ns_ = NowNs() + kRetryNs;
    // A failure is logged once, not at each attempt.
    if (status != fault_) {
      Attempt([&] {
        Log(Severity::kError, absl::StrCat("request log of model '", model_, "': ", status.message(),
                                           "; samples are dropped until a later attempt succeeds"));
        return absl::OkStatus();
      }).IgnoreError();
    }
  }
  fault_ = status;
}

std::shared_ptr<ModelLog> RequestLog::Of(const std::string& model, const RequestLogSettings& settings) {
  const auto found = logs_.find(model);
  if (found == logs_.end() && settings.sample == 0) return nullptr;
  if (settings.sample > 0) StartThread();
  std::shared_ptr<ModelLog>& log = found == logs_.end() ? logs_[model] : found->second;
  if (log == nullptr) log = std::make_shared<ModelLog>(model, absl::StrCat(folder_, "/", model), &queue_);
  log->Configure(settings);
  return log;
}

void RequestLog::Keep(const std::map<std::string, DesiredModel, std::less<>>& models) {
  for (auto it = logs_.begin(); it != logs_.end();) {
    const bool wanted = models.count(it->first) > 0;
    if (!wanted) it->second->Configure({});
    it = wanted ? std::next(it) : logs_.erase(it);
  }
}

void RequestLog::StartThread() {
  if (thread_.joinable()) return;
  std::string error;
  try {
    thread_ = std::thread([this] { Work(); });
  } catch (const std::exception& e) {
    error = e.what();
  }
  // Requests are served nevertheless; the queue will be full soon.
  if (!error.empty() && error != thread_error_) Log(Severity::kError, absl::StrCat("request log: no thread: ", error));
  thread_error_ = error;
}

void RequestLog::Work() noexcept {
  pthread_setname_np(pthread_self(), "request-log");
  KeepThreadInPlace();
  // SCHED_IDLE would let a busy host write nothing.
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kLeastPriority);
  while (!stop_.load()) {
    queue_.Wait();
    while (!stop_.load() && WriteNext(TimePoint::max())) {
    }
  }
}

std::unique_ptr<SampledRequest> RequestLog::PopNext() {
  if (taken_ == nullptr) taken_ = queue_.Take();
  if (taken_ == nullptr) return nullptr;
  return std::unique_ptr<SampledRequest>(std::exchange(taken_, taken_->next));
}

bool RequestLog::WriteNext(TimePoint deadline) noexcept {
  std::unique_lock<std::timed_mutex> lock(writing_, std::defer_lock);
  if (deadline == TimePoint::max()) {
    lock.lock();
  } else if (!lock.try_lock_until(deadline)) {
    return false;
  }
  const std::unique_ptr<SampledRequest> next = PopNext();
  if (next == nullptr) return false;
  next->log->Write(*next);
  queue_.Release(next->request.size());
  return true;
}

void RequestLog::FlushUntil(TimePoint deadline) noexcept {
  const TimePoint end = std::min(deadline, std::chrono::steady_clock::now() + kLongestFlush);
  // This thread writes the records itself, because the log's thread may wait long for a CPU.
  while (WriteNext(end) && std::chrono::steady_clock::now() < end) {
  }
}

void RequestLog::Stop() noexcept {
  if (!thread_.joinable()) return;
  Flush();
  stop_ = true;
  queue_.Wake();
  thread_.join();
  while (const std::unique_ptr<SampledRequest> left = PopNext()) {
    left->log->Drop();
    queue_.Release(left->request.size());
  }
}

}  // namespace processor
