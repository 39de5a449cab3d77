// SPDX-License-Identifier: Apache-2.0
// The threads that run requests of all models of the process, where a session has no CPUs or threads of its own.
//
// As many requests run at a time as the process may use CPUs, however many models there are. The next free thread goes
// to the model with the fewest running requests. Requests that have run for a while do not count any more, so that
// quick ones do not wait for slow ones to end. A model may fill half of the room for slow requests, so that there is
// always room for another model's.
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
    size_t calls_ = 0;   // for a thread, which have got none yet
    size_t inside_ = 0;  // threads in RunNext()
  };

  /// The threads of the process, which are never destroyed.
  static RequestThreads& OfProcess();

  /// `at_once`: how many requests run at a time; `most`: the same with those that take long, except one of each model.
  RequestThreads(size_t at_once, size_t most) : at_once_(at_once), most_(most) {}
  /// Waits for the threads. No function may be called any more.
  ~RequestThreads();
  RequestThreads(const RequestThreads&) = delete;
  RequestThreads& operator=(const RequestThreads&) = delete;

  /// Has a thread call source->RunNext() soon.
  /// \return RESOURCE_EXHAUSTED if there is no thread and none can be started.
  absl::Status Call(Source* source, Share* share);

  /// Waits until no thread is in the source; none will enter it any more.
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
  // A request that has not run for long yet.
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
  bool watched_ = false;  // a thread waits until the oldest has run for long
  bool ended_ = false;
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_THREADS_REQUEST_THREADS_H_
