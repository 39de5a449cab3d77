// SPDX-License-Identifier: Apache-2.0
// A bounded queue of requests that wait to be written, from any thread to one. It has no lock, because the writing
// thread has low priority and might hold it for long. The request log owns it.
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

/// A copy of a request that was answered.
struct SampledRequest {
  std::shared_ptr<ModelLog> log;
  Buffer request;       // a serialized PredictRequest
  int64_t version = 0;  // that answered it
  int sample = 0;       // sampling rate at that time, in hundredths of a percent
  SampledRequest* next = nullptr;
};

class SampleQueue {
 public:
  SampleQueue(int64_t max_requests, int64_t max_bytes);
  ~SampleQueue();
  SampleQueue(const SampleQueue&) = delete;
  SampleQueue& operator=(const SampleQueue&) = delete;

  /// Whether there seems to be room for a request of that size.
  bool HasRoom(size_t bytes) const;

  /// Takes over a request and leaves null; returns false if there is no room.
  bool Push(std::unique_ptr<SampledRequest>* sample);

  /// Waits for requests, or Wake().
  void Wait();
  /// Takes all requests: a list in the order of their arrival, which the caller deletes; null if there are none.
  SampledRequest* Take();
  /// Makes room again for a request that was taken and has been written.
  void Release(size_t bytes);
  void Wake() { sem_post(&wake_); }

  /// The number of requests that wait, or that have been taken and not released.
  int64_t size() const { return requests_.load(); }

 private:
  const int64_t max_requests_, max_bytes_;
  std::atomic<int64_t> requests_{0}, bytes_{0};
  std::atomic<SampledRequest*> newest_{nullptr};
  sem_t wake_;
};

}  // namespace processor

#endif  // PROCESSOR_HOST_REQUEST_LOG_SAMPLE_QUEUE_H_
