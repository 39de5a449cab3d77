// SPDX-License-Identifier: Apache-2.0
// Asks running work to stop: of one request, of several that run together, or of a load.
//
// Whoever runs a graph makes a Cancellation current on its thread. The executor finds it there and hands it on to the
// step, whose kernels, loop conditions and functions look at it. Kernels cannot be interrupted: the work stops where it
// looks next.
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
  /// Who has to be told, as looking would come too late.
  class Listener {
   public:
    virtual ~Listener() = default;
    /// At most once, under a lock of the Cancellation: it must not be asked anything from here.
    virtual void OnCancel() noexcept = 0;
  };

  Cancellation() = default;
  Cancellation(const Cancellation&) = delete;
  Cancellation& operator=(const Cancellation&) = delete;

  /// Asks for the end of the work. The first reason stays.
  /// \return whether this was the first.
  bool Request(const absl::Status& why) noexcept;
  bool requested() const noexcept { return requested_.load(std::memory_order_relaxed); }
  /// OK while nobody has asked.
  absl::Status why() const;

  /// Has a listener told, of which there is one at a time. False if there is nothing to wait for: it has been requested.
  bool Listen(Listener* listener) noexcept;
  /// When it returns, the listener is not being told and will not be.
  void Unlisten() noexcept;

  /// What the work of this thread has to look at; null if nobody can stop it.
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

/// Of work that is done for several requests at once: it is cancelled once all of them are.
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
