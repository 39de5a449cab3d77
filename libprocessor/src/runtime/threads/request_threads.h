// SPDX-License-Identifier: Apache-2.0
// The threads that run the requests of all models of the process whose sessions have no CPUs or threads of their own.
//
// As many requests run at a time as the process may use CPUs, whatever the number of models. The next free thread
// serves the model with the fewest running requests. Requests that have run for a while are not counted, so that quick
// ones do not wait for slow ones. A model may use half of the room for slow requests, so that other models have room as
// well.
#ifndef PROCESSOR_RUNTIME_THREADS_REQUEST_THREADS_H_
#define PROCESSOR_RUNTIME_THREADS_REQUEST_THREADS_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>

#include "absl/status/status.h"

namespace processor {

/// Every function may be called from any thread.
class RequestThreads {
 public:
  /// The running requests of one model, in all of its sessions. Guarded by the threads' lock.
  struct Share {
    size_t running = 0;
  };

  /// A queue of requests, which its owner must detach before it is destroyed.
  class Source {
   public:
    virtual ~Source() = default;
    /// Runs the next request, if one waits.
    virtual void RunNext() noexcept = 0;

   private:
    friend class RequestThreads;
    size_t calls_ = 0;   // pending calls that no thread has taken yet
    size_t inside_ = 0;  // threads in RunNext()
  };

  /// The threads of the process, which are never destroyed.
  static RequestThreads& OfProcess();

  /// `at_once`: the number of requests that run at a time; `most`: the same including slow ones, except for one of each
  /// model.
  RequestThreads(size_t at_once, size_t most) : at_once_(at_once), most_(most) {}
  /// Waits for the threads. No function may be called afterwards.
  ~RequestThreads();
  RequestThreads(const RequestThreads&) = delete;
  RequestThreads& operator=(const RequestThreads&) = delete;

  /// Schedules a call of source->RunNext() on a thread.
  /// \return RESOURCE_EXHAUSTED if there is no thread and none can be started.
  absl::Status Call(Source* source, Share* share);

  /// Waits until no thread is in source->RunNext(); none will call it again.
  void Forget(Source* source) noexcept;

  size_t at_once() const { return at_once_; }
  /// The number of threads.
  size_t threads() const;

 private:
  struct Waiter {
    Source* source;
    Share* share;
  };
  using Waiters = std::deque<Waiter>;
  // A running request that is not slow yet.
  struct Recent {
    int64_t begin_ns;
    bool counts = true;
    Recent* older = nullptr;
    Recent* newer = nullptr;
  };

  void Work() noexcept;
  // With the lock held:
  absl::Status StartThread();
  bool HasRoom(const Share& share) const;
  Waiters::iterator FindNext();
  void Count(Recent* begun);
  void Uncount(Recent* recent);
  void UncountSlow(int64_t now_ns);

  const size_t at_once_, most_;
  mutable std::mutex mutex_;
  std::condition_variable wake_, left_;
  Waiters waiting_;
  size_t threads_ = 0, running_ = 0, recent_ = 0;
  Recent* oldest_ = nullptr;
  Recent* newest_ = nullptr;
  bool watched_ = false;  // a thread waits until the oldest counts as slow
  bool ended_ = false;
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_THREADS_REQUEST_THREADS_H_
