// SPDX-License-Identifier: Apache-2.0
// Watches the requests of a model from their admission to their end, so that one, or all, can be stopped: at a
// deadline, when a client disconnects, when a version is unloaded. The model owns it; requests own their entries.
//
// Every request is watched, including those that take 20 us. Therefore adding and removing one only links it into one
// of several lists, without allocating. The thread that checks deadlines is woken only for a deadline before all
// others.
#ifndef PROCESSOR_RUNTIME_REQUESTS_REQUEST_WATCH_H_
#define PROCESSOR_RUNTIME_REQUESTS_REQUEST_WATCH_H_

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>

#include "absl/status/status.h"

namespace processor {

class RequestWatch {
 public:
  /// A request that is watched. It must be removed before it is destroyed.
  class Entry {
   public:
    virtual ~Entry() = default;
    /// Ends the request with `why`, now or soon. Called on any thread, perhaps on several at once; not after Remove().
    /// \return false if it has been stopped or answered already.
    virtual bool Stop(const absl::Status& why) noexcept = 0;

    uint64_t number() const { return number_; }

   private:
    friend class RequestWatch;
    uint64_t number_ = 0;
    int64_t deadline_us_ = 0;
    size_t shard_ = 0;
    int acting_ = 0;  // threads that are in Stop()
    Entry* next_ = nullptr;
    Entry* previous_ = nullptr;
  };

  RequestWatch() = default;
  ~RequestWatch() { End(); }
  RequestWatch(const RequestWatch&) = delete;
  RequestWatch& operator=(const RequestWatch&) = delete;

  /// Begins to watch a request, and gives it a number, which is never 0. `deadline_us`: when to stop it, on
  /// CLOCK_MONOTONIC; 0: never. Without memory or threads the deadline is not watched while the request runs.
  void Add(Entry* entry, int64_t deadline_us) noexcept;
  /// Ends watching a request, and waits until no other thread is stopping it. May be called from its Stop().
  void Remove(Entry* entry) noexcept;

  /// Stops the request with that number. Returns false if it has ended, was stopped before, or never existed.
  bool Stop(uint64_t number, const absl::Status& why) noexcept;
  /// Stops all requests that are watched.
  void StopAll(const absl::Status& why) noexcept;

  /// Ends the thread that checks deadlines.
  void End() noexcept;

  /// The number of requests that are watched.
  size_t size() const;

 private:
  static constexpr size_t kShards = 16;
  static constexpr int64_t kNever = INT64_MAX;

  struct alignas(64) Shard {
    mutable std::mutex mutex;
    std::condition_variable stopped;
    Entry* first = nullptr;
    uint64_t next_number = 0;
  };
  // A Stop() that this thread is in, and the one around it.
  struct Act {
    Entry* entry;
    Act* outer;
    bool removed;
  };

  template <typename Matches>
  bool StopFirst(Shard& shard, const absl::Status& why, Matches matches) noexcept;
  void WakeAt(int64_t deadline_us) noexcept;
  void LookAtDeadlines() noexcept;
  int64_t StopLate() noexcept;

  static Act*& Acts();

  std::array<Shard, kShards> shards_;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<int64_t> wake_us_{kNever};
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_REQUESTS_REQUEST_WATCH_H_
