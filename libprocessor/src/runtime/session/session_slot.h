// SPDX-License-Identifier: Apache-2.0
// The resources of one session of a model: CPUs, thread pools, the queue with the threads that serve it, and counters.
//
// A model owns its slots, which live as long as it does. The TensorFlow session of a slot changes with every model
// version, but its threads stay. Tasks run on threads that all models of the process share, unless the slot has CPUs or
// threads of its own, which start when they are needed.
#ifndef PROCESSOR_RUNTIME_SESSION_SESSION_SLOT_H_
#define PROCESSOR_RUNTIME_SESSION_SESSION_SLOT_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "src/runtime/stats/stats.h"
#include "src/runtime/threads/adaptive_spin.h"
#include "src/runtime/threads/cpuset.h"
#include "src/runtime/threads/pinned_pool.h"
#include "src/runtime/threads/placed_threads.h"
#include "src/runtime/threads/request_threads.h"

namespace processor {

/// A request that waits for a session. Exactly one of Run() and Fail() is called, once, and ends it. Neither may throw.
/// The submitter and the slot share it.
class Task {
 public:
  virtual ~Task() = default;
  virtual void Run(int session) noexcept = 0;
  /// Ends the task without running it. Called on any thread.
  virtual void Fail(const absl::Status& status) noexcept = 0;

  uint64_t id = 0;
  int32_t priority = 0;
  int64_t deadline_us = 0;  // CLOCK_MONOTONIC; 0: none
};

class SessionSlot : private RequestThreads::Source {
 public:
  struct Options {
    std::string name;
    int index = 0;
    int intra_op_threads = 1;
    int inter_op_threads = 1;
    int worker_threads = 1;  // of its own; 0: one for each CPU of its own, else those of `shared`
    RequestThreads* shared = nullptr;
    std::shared_ptr<RequestThreads::Share> share;  // of the model
    int max_queue_size = 1;
    /// Whether at most as many tasks run at once as the slot has CPUs of its own. With more, each would take longer,
    /// and their mean latency would rise.
    bool one_task_per_cpu = false;
    CpuSet cpus;
  };

  explicit SessionSlot(Options options);
  ~SessionSlot() override;

  /// Queues a task: larger priority first, then earlier arrival.
  /// \return RESOURCE_EXHAUSTED if the queue is full, CANCELLED if the slot is stopped; the task is then untouched, as
  ///         it is when this throws.
  absl::Status Submit(const std::shared_ptr<Task>& task);

  /// Queues a task again that has run before, ahead of those of its priority that have not, even if the queue is full.
  /// \return as Submit().
  absl::Status Resume(const std::shared_ptr<Task>& task);

  /// Runs a task on a thread of the slot's own, even if the queue is full. For tasks that run batches until no request
  /// waits.
  /// \return as Submit().
  absl::Status Serve(const std::shared_ptr<Task>& task);

  /// Lets the calling thread run a request itself, on the CPUs of the slot, instead of Submit(): if the request would
  /// begin at once, and the thread may use these CPUs. It counts as running until the visit ends, which must be before
  /// the slot is destroyed.
  class Visit {
   public:
    explicit Visit(SessionSlot* slot);
    ~Visit();
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;
    /// Whether the thread may run the request.
    bool begun() const { return begun_; }

   private:
    SessionSlot& slot_;
    PlacedThreads::Visit place_;
    int64_t begin_ns_ = 0;
    bool begun_ = false;
  };

  /// Removes a waiting task from the queue, so that the caller can end it; returns null if it does not wait.
  std::shared_ptr<Task> Remove(uint64_t id);

  /// Fails all waiting tasks and refuses later ones. Running ones continue.
  void Refuse(const absl::Status& status);
  /// Waits for the running tasks, but not for visits, and ends the threads. After Refuse().
  void Stop();

  void SetCpus(const CpuSet& cpus);
  CpuSet cpus() const;

  size_t queued() const;
  /// The number of tasks that may run at once, about: threads that models share run more if some are slow.
  size_t places() const;
  /// The number of requests that wait or run, by which LEAST_LOADED chooses.
  std::atomic<int>& load() { return load_; }

  PinnedPool& intra_op_pool() { return intra_op_pool_; }
  /// The pool's threads start with the first call, since the library's own executor needs none.
  PinnedPool& inter_op_pool();
  SessionStats& stats() { return stats_; }
  const SessionStats& stats() const { return stats_; }

 private:
  void Work();
  absl::Status Queue(std::unique_lock<std::mutex> lock, uint64_t sequence, const std::shared_ptr<Task>& task);
  /// Tells a thread of a task, or of room for one. Called after `lock` has guarded the change.
  void Wake(std::unique_lock<std::mutex> lock) noexcept;
  // Take and give back the place of a visit.
  bool TakePlace();
  void GivePlaceBack() noexcept;
  void RunNext() noexcept override;
  // With `mutex_` held:
  /// Whether tasks run on threads that models share.
  bool Shares() const;
  /// The number of threads that the slot needs.
  size_t ThreadsWanted() const;
  /// Whether another task may begin.
  bool HasRoom() const;
  /// Whether a thread that waits may spin: on CPUs of the slot that no task uses.
  bool MaySpin() const;
  /// Waits until there is something to do.
  template <typename Ready>
  void Wait(std::unique_lock<std::mutex>* lock, AdaptiveSpin* spin, const Ready& ready);
  absl::Status StartThreads();

  const Options options_;
  PinnedPool intra_op_pool_;
  SessionStats stats_;
  std::atomic<int> load_{0};
  std::atomic<int64_t> usual_visit_ns_{INT64_MAX};

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  CpuSet cpus_;
  std::unique_ptr<PinnedPool> inter_op_pool_;
  // By falling priority, then rising sequence number.
  std::map<std::pair<int64_t, uint64_t>, std::shared_ptr<Task>> queue_;
  // Tasks that have run before come first.
  static constexpr uint64_t kFirstSubmitted = uint64_t{1} << 63;
  uint64_t sequence_ = kFirstSubmitted, resumed_ = 0;
  std::deque<std::shared_ptr<Task>> serving_;
  bool stopped_ = false;
  size_t running_ = 0;   // tasks on its threads, and visits
  size_t waiting_ = 0;   // threads that wait,
  size_t spinning_ = 0;  // and those of them that look at `calls_`
  int64_t called_ns_ = 0;
  std::atomic<uint32_t> calls_{0};
  std::vector<std::thread> threads_;
  PlacedThreads placed_;  // those threads
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_SESSION_SESSION_SLOT_H_
