// SPDX-License-Identifier: Apache-2.0
// Batches requests that wait for a session. The batched requests of a model own it.
//
// A session has places, each for one run at a time. A thread that finds a free place runs its request there at once;
// otherwise the request waits. A thread that ends a run gives its place to the first waiting request, whose batch takes
// all waiting requests that fit. A caller that waits for its request runs the batch on its own thread; a worker thread
// of the session runs batches of started requests. In the mode kTimed, a place is given away only when enough rows
// wait, or a request has waited long enough.
//
// If there are as many places as CPUs, a batch is made up of requests from threads of one CPU, as far as possible: waking
// a thread of another CPU costs as much as the kernels of a row. A place that becomes free is kept for the CPU of its
// run until the threads that return from the run on that CPU have written their responses. Often they send the next
// requests at once, and a place that the first of them took would run that request alone.
//
// The batcher does not know tensors: its owner passes functions that read requests and run batches.
#ifndef PROCESSOR_RUNTIME_BATCHING_BATCHER_H_
#define PROCESSOR_RUNTIME_BATCHING_BATCHER_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>

#include "absl/status/status.h"
#include "src/runtime/batching/session_places.h"
#include "src/runtime/batching/threads_by_cpu.h"
#include "src/runtime/batching/waiting_list.h"
#include "src/runtime/batching/yield_policy.h"
#include "src/runtime/config/batch_options.h"

namespace processor {

class Batcher;

/// A request at a batcher. The caller of Run() or Start() owns it.
class BatchEntry {
 public:
  virtual ~BatchEntry() = default;

  /// Reads the request and sets `rows` and `kind`. Called once, before it is run or compared.
  virtual absl::Status Prepare() noexcept = 0;
  /// Called once after Prepare() of a started request. Whether it has to wait for something other than a place: then it is
  /// not touched until Batcher::Resume() or Batcher::EndPostponed() is called for it, which may be before this returns.
  virtual bool Postpone() noexcept { return false; }
  /// Called once, after it has been run: of a started request on any thread, and the request may destroy itself there;
  /// else by Run() on the caller's thread.
  virtual void Ran() noexcept = 0;
  /// Ends a started request without running it, in place of Ran().
  virtual void Fail(const absl::Status& status) noexcept = 0;

  uint64_t id = 0;
  int32_t priority = 0;
  int64_t deadline_us = 0;  // CLOCK_MONOTONIC; 0: none
  int64_t rows = 0;         // 0: it is run alone
  uint64_t kind = 0;        // only requests of one kind are run together

  /// The next entry of the same batch; null for the last one.
  BatchEntry* next() const { return next_; }

  class Seat;

 private:
  friend class Batcher;
  friend class WaitingList<BatchEntry>;

  bool prepared_ = false;
  bool listed_ = false;
  bool overdue_ = false;  // it has waited long enough: it gets the next free place
  int64_t arrived_ns_ = 0;
  uint64_t sequence_ = 0;
  int cpu_ = -1;            // of the thread that waits for it; -1 for a started request
  bool returning_ = false;  // that thread is counted as returning
  Seat* seat_ = nullptr;    // of the thread that waits for it; null for a started request
  BatchEntry* next_ = nullptr;
  BatchEntry* previous_ = nullptr;
};

/// Every function may be called from any thread.
class Batcher {
 public:
  struct Setup {
    int sessions = 1;
    int places = 1;          // of each session
    size_t max_waiting = 1;  // of started requests, postponed ones included
    bool by_cpu = false;     // whether batches are made up by CPU; not in the mode kTimed
    /// Runs a chain of entries (BatchEntry::next()) on a session and keeps the outcome of each. Must not throw.
    std::function<void(int session, BatchEntry* first)> run;
    /// Has a thread of the session call Serve(session) soon, unless it fails. Must not throw.
    std::function<absl::Status(int session)> call_worker;
  };

  explicit Batcher(Setup setup);

  void SetOptions(const BatchOptions& options);
  BatchOptions options() const;
  bool on() const { return on_.load(std::memory_order_relaxed); }

  /// Runs a request on this thread, or has another thread run it in its batch, and waits for it.
  /// `preferred`: the session that is taken if it is free.
  /// \return OK if it has been run, else why it has not been: the status of Prepare(), DEADLINE_EXCEEDED, or the status
  ///         of Stop().
  absl::Status Run(BatchEntry& entry, int preferred);

  /// Starts a request. The entry must live until Ran() or Fail() is called.
  /// \return RESOURCE_EXHAUSTED if too many wait, or the status of Stop(); neither is called then.
  absl::Status Start(BatchEntry* entry, int preferred);

  /// Lets a request that was postponed wait for a place, before those that came later. It may end here.
  void Resume(BatchEntry* entry) noexcept;
  /// Called in place of Resume() if the caller has ended the request.
  void EndPostponed() noexcept { num_postponed_.fetch_sub(1, std::memory_order_relaxed); }

  /// Removes a started request, so that the caller can end it; returns null if it does not wait.
  BatchEntry* Remove(uint64_t id);

  /// Runs waiting requests until none is left. For the worker thread that `call_worker` has woken.
  void Serve(int session) noexcept;
  /// Called in place of Serve() if that thread never comes, since the batcher has been stopped.
  void ReturnPlace(int session) noexcept;

  /// Ends waiting and later requests with `status`. Running ones continue.
  void Stop(const absl::Status& status);

  size_t waiting() const {
    return num_waiting_.load(std::memory_order_relaxed) + num_postponed_.load(std::memory_order_relaxed);
  }

 private:
  using Seat = BatchEntry::Seat;

  static absl::Status Prepare(BatchEntry& entry);
  bool Postpone(BatchEntry* entry) noexcept;
  bool WaitForPlace(BatchEntry& entry, Seat& seat, int preferred, absl::Status* status, int* session);
  void Lead(BatchEntry* first, int session) noexcept;
  void GatherOrYield(BatchEntry* first) noexcept;
  int64_t Gather(BatchEntry* first) noexcept;
  void GiveBack(BatchEntry* entry) noexcept;
  void PassOn(int session, BatchEntry* first) noexcept;
  void EndReturn(int cpu) noexcept;
  static void Deliver(BatchEntry* first) noexcept;

  // With the lock held:
  void List(BatchEntry* entry);
  void Unlist(BatchEntry* entry);
  Seat* TakeSeat(BatchEntry* entry);
  int64_t DueNs(const BatchEntry& entry) const;
  BatchEntry* Due(int64_t* when_ns) const;
  bool ByCpu() const { return setup_.by_cpu && options_.mode != BatchMode::kTimed; }
  bool MayTakePlace(int cpu) const;
  BatchEntry* NextOn(int cpu, int64_t* when_ns) const;
  int64_t Share() const;
  absl::Status HandOut(int preferred, int cpu);

  const Setup setup_;
  std::atomic<bool> on_{false};
  std::atomic<size_t> num_waiting_{0};
  std::atomic<size_t> num_postponed_{0};
  std::atomic<int64_t> usual_run_ns_{0};
  std::atomic<int64_t> running_{0};  // requests in runs
  YieldPolicy yield_policy_;

  mutable std::mutex mutex_;
  BatchOptions options_;
  SessionPlaces places_;
  WaitingList<BatchEntry> waiting_;
  ThreadsByCpu threads_;
  int64_t waiting_rows_ = 0;
  size_t num_started_ = 0;  // waiting requests that were started
  uint64_t sequence_ = 0;
  // For workers that hold a place and wait until a request is due.
  std::condition_variable wake_;
  int watchers_ = 0;
  bool stopped_ = false;
  absl::Status stop_status_;
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_BATCHING_BATCHER_H_
