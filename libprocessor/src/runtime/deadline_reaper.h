// SPDX-License-Identifier: Apache-2.0
// Ends waiting requests when their deadline passes, not when a session gets to them: a session that is busy for long
// would keep a caller waiting long after it stopped caring.
#ifndef PROCESSOR_RUNTIME_DEADLINE_REAPER_H_
#define PROCESSOR_RUNTIME_DEADLINE_REAPER_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

namespace processor {

class DeadlineReaper {
 public:
  /// `expire` is called with the id of a request whose deadline has passed; it may have ended already. What it throws
  /// is passed over.
  explicit DeadlineReaper(std::function<void(uint64_t id)> expire) : expire_(std::move(expire)) {}
  ~DeadlineReaper() { Stop(); }

  /// Any thread may call. The first call starts the thread. Without memory or threads the deadline is not looked after.
  void Add(int64_t deadline_us, uint64_t id) noexcept;

  /// Forgets a deadline, for a request that has ended: a host may give every request an hour, and answer them in a
  /// millisecond.
  void Remove(int64_t deadline_us, uint64_t id);

  /// Deadlines that are waited for.
  size_t size() const;

  void Stop();

 private:
  void Work();

  const std::function<void(uint64_t id)> expire_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::set<std::pair<int64_t, uint64_t>> deadlines_;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_DEADLINE_REAPER_H_
