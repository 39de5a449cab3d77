// SPDX-License-Identifier: Apache-2.0
// Requests that wait for a session, and what puts them together.
//
// A session has places, each for one run at a time. A thread that comes while one is free runs its request there at once.
// Others wait; whoever ends a run hands its place to the first that waits, and that one takes all that can be run
// together with it. Callers who wait lead runs on their own threads; requests that nobody waits for are run by a thread of
// the session's. In the mode kTimed a place is handed out only when enough rows wait or one has waited long enough.
//
// The batcher knows nothing of tensors: what a request is, and how several are run, is the caller's.
#ifndef PROCESSOR_RUNTIME_BATCHING_BATCHER_H_
#define PROCESSOR_RUNTIME_BATCHING_BATCHER_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "src/runtime/batching/waiting_list.h"
#include "src/runtime/config/batch_options.h"

namespace processor {

class Batcher;

/// A request at a batcher.
class BatchEntry {
 public:
  virtual ~BatchEntry() = default;

  /// Reads the request and sets `rows` and `kind`. Called once, before it is run or compared.
  virtual absl::Status Prepare() noexcept = 0;
  /// Of a started request, exactly one of both, once: it has been run, or never will be. It may be destroyed then.
  virtual void Ran() noexcept = 0;
  virtual void Fail(const absl::Status& status) noexcept = 0;

  uint64_t id = 0;
  int32_t priority = 0;
  int64_t deadline_us = 0;  // CLOCK_MONOTONIC; 0: none
  int64_t rows = 0;         // 0: it is run alone
  uint64_t kind = 0;        // only requests of one kind are run together

  /// The next one of the same run.
  BatchEntry* next() const { return next_; }

  class Seat;

 private:
  friend class Batcher;
  friend class WaitingList<BatchEntry>;

  bool prepared_ = false;
  bool listed_ = false;
  bool overdue_ = false;  // nobody looks at the clock for it: the next place is its
  int64_t arrived_ns_ = 0;
  uint64_t sequence_ = 0;
  Seat* seat_ = nullptr;  // of the thread that waits for it; null: none does
  BatchEntry* next_ = nullptr;
  BatchEntry* previous_ = nullptr;
};

class Batcher {
 public:
  struct Setup {
    int sessions = 1;
    int places = 1;          // of each session
    size_t max_waiting = 1;  // of started requests
    /// Runs a chain of entries (BatchEntry::next()) on a session and keeps what came of each. Must not throw.
    std::function<void(int session, BatchEntry* first)> run;
    /// Has a thread of the session's call Serve(session), soon. Nothing has happened if it fails. Must not throw.
    std::function<absl::Status(int session)> call_worker;
  };

  explicit Batcher(Setup setup);

  void SetOptions(const BatchOptions& options);
  BatchOptions options() const;
  bool on() const { return on_.load(std::memory_order_relaxed); }

  /// Runs a request on this thread, or has another thread run it along, and waits for it.
  /// `preferred`: the session that is taken if it is free.
  /// \return OK if it has been run; why it has not been: what Prepare() answered, DEADLINE_EXCEEDED, or what Stop() was
  ///         given.
  absl::Status Run(BatchEntry& entry, int preferred);

  /// Has a request run. The entry must live until it hears of its end.
  /// \return RESOURCE_EXHAUSTED if too many wait, or what Stop() was given: the entry hears nothing then.
  absl::Status Start(BatchEntry* entry, int preferred);

  /// Takes a started request out, so that the caller can end it; null if it does not wait (any more).
  BatchEntry* Remove(uint64_t id);

  /// What the thread does that `call_worker` has asked for: runs what waits, until nothing does.
  void Serve(int session) noexcept;
  /// Instead of Serve(), where the thread never came: the batcher is stopped by then.
  void ReturnPlace(int session) noexcept;

  /// Ends all that waits with `status`, and all that comes later. What is running goes on.
  void Stop(const absl::Status& status);

  size_t waiting() const { return num_waiting_.load(std::memory_order_relaxed); }

 private:
  using Seat = BatchEntry::Seat;

  static absl::Status Prepare(BatchEntry& entry);
  bool WaitForPlace(BatchEntry& entry, Seat& seat, int preferred, absl::Status* status, int* session);
  void Lead(BatchEntry* first, int session) noexcept;
  void LetOthersCome(BatchEntry* first) noexcept;
  int64_t Gather(BatchEntry* first) noexcept;
  void GiveBack(BatchEntry* entry) noexcept;
  void PassOn(int session) noexcept;
  static void Deliver(BatchEntry* first) noexcept;

  // With the lock held:
  void List(BatchEntry* entry);
  void Unlist(BatchEntry* entry);
  int TakePlace(int preferred);
  void FreePlace(int session);
  int64_t DueNs(const BatchEntry& entry) const;
  BatchEntry* Due(int64_t* when_ns) const;
  int64_t Share() const;
  absl::Status HandOut(int preferred);

  const Setup setup_;
  std::atomic<bool> on_{false};
  std::atomic<size_t> num_waiting_{0};
  std::atomic<int64_t> usual_run_ns_{0};
  std::atomic<int64_t> running_{0};  // requests in runs
  // Of LetOthersCome(): what it has brought lately; runs that will not try it, and how many the next futile one costs.
  std::atomic<int64_t> gain_ns_{0};
  std::atomic<uint32_t> patience_{0}, backoff_{1};

  mutable std::mutex mutex_;
  BatchOptions options_;
  std::vector<int> places_;  // free ones of each session
  int free_places_ = 0;
  WaitingList<BatchEntry> waiting_;
  int64_t waiting_rows_ = 0;
  size_t num_started_ = 0;  // of those that wait, the ones without a thread
  uint64_t sequence_ = 0;
  // Workers that hold a place and wait for something to be due.
  std::condition_variable wake_;
  int watchers_ = 0;
  bool stopped_ = false;
  absl::Status stop_status_;
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_BATCHING_BATCHER_H_
