// SPDX-License-Identifier: Apache-2.0
// Asks running work to stop: that of one request, of several that run together, or of a load. Whoever starts the work
// owns the Cancellation.
//
// A thread that runs a graph makes a Cancellation current. The executor finds it there and passes it on to the step,
// whose kernels, loop conditions and functions look at it. Kernels cannot be interrupted: the work stops where it looks
// next.
#ifndef PROCESSOR_RUNTIME_REQUESTS_CANCELLATION_H_
#define PROCESSOR_RUNTIME_REQUESTS_CANCELLATION_H_

#include <atomic>
#include <mutex>
#include <vector>

#include "absl/status/status.h"

namespace processor {

/// Any thread may ask and look.
class Cancellation {
 public:
  /// Somebody who has to be told, since looking would come too late.
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
  /// The reason; OK while nobody has asked.
  absl::Status why() const;

  /// Sets the listener, of which there is one at a time. Returns false if the end has been requested already.
  bool Listen(Listener* listener) noexcept;
  /// Removes the listener, which is not being told, and will not be, when this returns.
  void Unlisten() noexcept;

  /// The Cancellation that the work of this thread has to look at; null if nobody can stop it.
  static Cancellation* Current() noexcept;

  /// Makes one current on this thread until the scope ends; null: none.
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

/// Stops work that is done for several requests at once, when all of them are canceled.
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
