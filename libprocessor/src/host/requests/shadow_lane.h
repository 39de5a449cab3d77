// SPDX-License-Identifier: Apache-2.0
// Mirrors live requests to one shadow version: copies of them wait in a short queue and run on a low-priority thread,
// and their scores are compared with those that the client got. A live request never waits for its copy.
#ifndef PROCESSOR_HOST_REQUESTS_SHADOW_LANE_H_
#define PROCESSOR_HOST_REQUESTS_SHADOW_LANE_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "absl/types/span.h"
#include "nlohmann/json.hpp"
#include "src/host/desired/routing.h"
#include "src/host/requests/host_call.h"
#include "src/host/requests/score_comparison.h"
#include "src/runtime/threads/thread_starter.h"
#include "tensorflow/core/framework/tensor.h"

namespace processor {

/// Owns the queue, the thread and the comparison. The shadow lanes of a host share it with the route table and
/// requests.
class ShadowLane {
 public:
  using Find = std::function<std::shared_ptr<const Servable>()>;

  /// `find` and `find_baseline` return the current shadow version and its baseline, or null while it is not ready.
  ShadowLane(Find find, Find find_baseline) : find_(std::move(find)), find_baseline_(std::move(find_baseline)) {}
  ~ShadowLane();
  ShadowLane(const ShadowLane&) = delete;
  ShadowLane& operator=(const ShadowLane&) = delete;

  /// Whether the next request is mirrored. `weight` is in hundredths of a percent.
  bool Samples(int weight) {
    return KeylessBucket(seen_.fetch_add(1, std::memory_order_relaxed)) < static_cast<uint32_t>(weight);
  }

  /// Copies a request that was answered, with its scores; drops it if the queue is full or busy. Its timing must be set.
  void Offer(const HostCall& call) noexcept;

  /// Drops waiting requests. The thread ends after the request that it runs.
  void Stop() noexcept;
  /// Whether the thread has ended, so that destroying the lane takes no time.
  bool ended() const { return ended_.load(); }

  uint64_t compared() const { return compared_.load(std::memory_order_relaxed); }
  uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }
  uint64_t failed() const { return failed_.load(std::memory_order_relaxed); }
  /// The comparison so far, and the number of dropped requests.
  nlohmann::ordered_json Json() const;

 private:
  struct Copy {
    std::string data;
    HostRequest request;  // its data is `data`
    const Method* method = nullptr;
    tensorflow::Tensor scores;    // that the client got
    tensorflow::Tensor answered;  // by the shadow version
    int64_t epoch = -1;           // of the baseline that answered; -1: it is not live
  };

  struct Job {
    std::unique_ptr<Copy> copy;
    std::shared_ptr<const Servable> servable;
    absl::Status status;
  };

  void Add(std::unique_ptr<Copy> copy);
  void Count(size_t requests, size_t bytes) noexcept;
  void Work() noexcept;
  void Take(Job* job);
  bool IsCurrent(const Copy& copy) const;
  static absl::Status Run(Copy& copy, const Servable& servable);
  void Record(Job* job);

  static constexpr size_t kCapacity = 256;
  static constexpr size_t kMaxBytes = size_t{64} << 20;

  const Find find_, find_baseline_;
  std::atomic<uint64_t> seen_{0}, compared_{0}, dropped_{0}, failed_{0};
  std::atomic<bool> ended_{true};

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::unique_ptr<Copy>> queue_;
  std::atomic<size_t> num_queued_{0}, queued_bytes_{0};  // of queue_, readable without the lock
  bool stopped_ = false;
  ThreadStarter starter_;  // with the scheduling of the thread that makes the lane: does for thread_ what takes locks
  std::thread thread_;     // begins with the first request

  mutable std::mutex comparison_mutex_;
  ScoreComparison comparison_;
};

/// Returns the first float output of a response; an empty tensor if there is none.
tensorflow::Tensor FirstFloat(const std::vector<tensorflow::Tensor>& outputs);
/// Returns the numbers of a float tensor.
absl::Span<const float> Floats(const tensorflow::Tensor& tensor);

}  // namespace processor

#endif  // PROCESSOR_HOST_REQUESTS_SHADOW_LANE_H_
