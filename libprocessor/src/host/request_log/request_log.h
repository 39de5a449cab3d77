// SPDX-License-Identifier: Apache-2.0
// Writes a sample of the answered requests as TFRecords of PredictionLog (docs/model_host.md, "Request log"). Requests
// are copied into a queue without waiting; one low-priority thread writes them.
#ifndef PROCESSOR_HOST_REQUEST_LOG_REQUEST_LOG_H_
#define PROCESSOR_HOST_REQUEST_LOG_REQUEST_LOG_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "absl/status/status.h"
#include "src/codec/protocols.h"
#include "src/host/desired/desired_state.h"
#include "src/host/desired/routing.h"
#include "src/host/request_log/record_folder.h"
#include "src/host/request_log/sample_queue.h"

namespace processor {

/// The log of one model, which the request log and the routes of the model share. Any thread may sample and read the
/// counts.
class ModelLog : public std::enable_shared_from_this<ModelLog> {
 public:
  ModelLog(std::string model, std::string folder, SampleQueue* queue)
      : model_(std::move(model)), queue_(queue), folder_(std::move(folder)) {}

  /// Sets which requests are sampled from now on, and how large the log may grow.
  void Configure(const RequestLogSettings& settings);

  /// Whether the next request belongs to the sample.
  bool Samples() {
    const int sample = sample_.load(std::memory_order_relaxed);
    return sample > 0 && DrawnBucket(seen_.fetch_add(1, std::memory_order_relaxed)) < static_cast<uint32_t>(sample);
  }

  /// Copies a request: its bytes if they are a PredictRequest, else a PredictRequest with the same tensors. Returns
  /// null, and counts it, if the queue is full or the request cannot be converted.
  std::unique_ptr<SampledRequest> Copy(const Method& method, std::string_view bytes, const DecodedRequest& request,
                                       int64_t version) noexcept;
  /// Takes over a copy to be written; does nothing for null.
  void Offer(std::unique_ptr<SampledRequest> sampled) noexcept;

  /// Writes a request that was offered. For the thread that writes.
  void Write(const SampledRequest& sampled) noexcept;
  void Drop() { dropped_.fetch_add(1, std::memory_order_relaxed); }

  uint64_t written() const { return written_.load(std::memory_order_relaxed); }
  uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }
  uint64_t unsupported() const { return unsupported_.load(std::memory_order_relaxed); }

 private:
  absl::Status Append(const SampledRequest& sampled);

  const std::string model_;
  SampleQueue* const queue_;  // outlives all requests
  std::atomic<int> sample_{0};
  std::atomic<int64_t> max_bytes_{0};
  std::atomic<int> max_files_{0};
  std::atomic<uint64_t> seen_{0}, written_{0}, dropped_{0}, unsupported_{0};

  // Of the thread that writes.
  RecordFolder folder_;
  absl::Status fault_;
  int64_t retry_at_ns_ = 0;
};

/// The request log of a host, which owns the logs of its models and the thread that writes.
class RequestLog {
 public:
  /// `folder` holds the folders of the models; it is made when there is something to write.
  explicit RequestLog(std::string folder) : folder_(std::move(folder)), queue_(kMaxRequests, kMaxBytes) {}
  ~RequestLog() { Stop(); }
  RequestLog(const RequestLog&) = delete;
  RequestLog& operator=(const RequestLog&) = delete;

  /// Returns the log of a model, with those settings from now on; null if the model was never sampled. The first log
  /// starts the thread.
  std::shared_ptr<ModelLog> Of(const std::string& model, const RequestLogSettings& settings);
  /// Removes the logs of models that are no longer served.
  void Keep(const std::map<std::string, DesiredModel, std::less<>>& models);

  using TimePoint = std::chrono::steady_clock::time_point;

  /// Writes all offered requests, for at most kLongestFlush.
  void Flush() noexcept { FlushUntil(TimePoint::max()); }
  void FlushUntil(TimePoint deadline) noexcept;
  /// Flushes, drops the remaining requests and ends the thread.
  void Stop() noexcept;

  static constexpr int64_t kMaxRequests = 1024;
  static constexpr int64_t kMaxBytes = int64_t{64} << 20;
  static constexpr std::chrono::seconds kLongestFlush{2};

 private:
  void StartThread();
  void Work() noexcept;
  /// Returns the next request that waits, or null. For one thread at a time.
  std::unique_ptr<SampledRequest> PopNext();
  /// Writes the next request. Returns false if there was none, or if another thread was writing until the deadline.
  bool WriteNext(TimePoint deadline) noexcept;

  const std::string folder_;
  SampleQueue queue_;
  std::map<std::string, std::shared_ptr<ModelLog>> logs_;  // of the control thread
  std::string thread_error_;

  std::timed_mutex writing_;  // no request takes it
  SampledRequest* taken_ = nullptr;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace processor

#endif  // PROCESSOR_HOST_REQUEST_LOG_REQUEST_LOG_H_
