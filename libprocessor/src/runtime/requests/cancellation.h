// SPDX-License-Identifier: Apache-2.0
// Asks running work to stop: that of one request, of a batch, or of a load. The request, batch or load owns the
// Cancellation.
//
// A thread that runs a graph makes a Cancellation current. The executor passes it on to the step, which checks it
// before kernels, loop iterations and function calls. A kernel cannot be interrupted: the work stops at the next check.
#ifndef PROCESSOR_RUNTIME_REQUESTS_CANCELLATION_H_
#define PROCESSOR_RUNTIME_REQUESTS_CANCELLATION_H_

#include <atomic>
#include <mutex>
#include <vector>

#include "absl/status/status.h"

namespace processor {

/// Every function may be called from any thread.
class Cancellation {
 public:
  /// Is called on cancellation. For work that cannot poll requested().
  class Listener {
   public:
    virtual ~Listener() = default;
    /// Called at most once, under a lock of the Cancellation, which must not be called from here.
    virtual void OnCancel() noexcept = 0;
  };

  Cancellation() = default;
  Cancellation(const Cancellation&) = delete;
  Cancellation& operator=(const Cancellation&) = delete;

  /// Asks the work to end. The first reason stays.
  /// \return whether this was the first.
  bool Request(const absl::Status& why) noexcept;
  bool requested() const noexcept { return requested_.load(std::memory_order_relaxed); }
  /// The reason; OK before the first Request().
  absl::Status why() const;

  /// Sets the listener, of which there is one at a time. Returns false if the end has been requested already.
  bool Listen(Listener* listener) noexcept;
  /// Removes the listener, and waits until a call of OnCancel() that has begun returns. None begins afterwards.
  void Unlisten() noexcept;

  /// The Cancellation of the work that runs on this thread; null if the work cannot be canceled.
  static Cancellation* Current() noexcept;

  /// Makes a Cancellation current on this thread until the scope ends; null: none.
  class Scope {
   public:
    explicit Scope(Cancellation* cancellation) noexcept;
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Cancellation* const before_;
  };

 private:
  mutable std::mutex mutex_;
  absl::Status why_;
  Listener* listener_ = nullptr;
  std::atomic<bool> requested_{false};
};

/// Cancels a batch once all of its requests are canceled. The batch owns it.
class JointCancellation {
 public:
  /// `members` outlive this.
  explicit JointCancellation(const std::vector<Cancellation*>& members);
  ~JointCancellation();

  Cancellation& all() { return all_; }

 private:
  struct Member : Cancellation::Listener {
    void OnCancel() noexcept override { joint->CountDown(); }
    JointCancellation* joint = nullptr;
    Cancellation* cancellation = nullptr;
  };

  void CountDown() noexcept;

  Cancellation all_;
  std::atomic<size_t> left_;
  std::vector<Member> members_;
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_REQUESTS_CANCELLATION_H_
