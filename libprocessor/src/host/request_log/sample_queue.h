// SPDX-License-Identifier: Apache-2.0
// Requests that wait to be written down: bounded, from any thread to one, and without a lock, since whoever writes them
// gives way to all others and might hold it for long.
#ifndef PROCESSOR_HOST_REQUEST_LOG_SAMPLE_QUEUE_H_
#define PROCESSOR_HOST_REQUEST_LOG_SAMPLE_QUEUE_H_

#include <semaphore.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "src/codec/buffer.h"

namespace processor {

class ModelLog;

/// A request that was answered.
struct SampledRequest {
  std::shared_ptr<ModelLog> log;
  Buffer request;       // a serialised PredictRequest
  int64_t version = 0;  // that answered
  int sample = 0;       // the share, in hundredths of a percent, by which it was chosen
  SampledRequest* next = nullptr;
};

class SampleQueue {
 public:
  SampleQueue(int64_t max_requests, int64_t max_bytes);
  ~SampleQueue();
  SampleQueue(const SampleQueue&) = delete;
  SampleQueue& operator=(const SampleQueue&) = delete;

  /// Is there room for a request of that size, as far as one can tell?
  bool HasRoom(size_t bytes) const;

  /// Takes it over, and leaves null; false if there is no room.
  bool Push(std::unique_ptr<SampledRequest>* sample);

  /// Waits for requests, or Wake().
  void Wait();
  /// Takes all that there are: a list in the order that they came in, which the caller deletes; null for none.
  SampledRequest* Take();
  /// One that was taken is done with: there is room again.
  void Release(size_t bytes);
  void Wake() { sem_post(&wake_); }

  /// Those that wait, or are not done with.
  int64_t size() const { return requests_.load(); }

 private:
  const int64_t max_requests_, max_bytes_;
  std::atomic<int64_t> requests_{0}, bytes_{0};
  std::atomic<SampledRequest*> newest_{nullptr};
  sem_t wake_;
};

}  // namespace processor

#endif  // PROCESSOR_HOST_REQUEST_LOG_SAMPLE_QUEUE_H_
