// SPDX-License-Identifier: Apache-2.0
// Who writes into tables now: a consistent cut begins while nobody does.
//
// There is one Writers for all tables of the process, so that a cut of several tables has one instant, and an op that
// writes into many tables is either before it or after it.
#ifndef ELASTIC_TRAINING_CUT_WRITERS_H_
#define ELASTIC_TRAINING_CUT_WRITERS_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

namespace elastic_training {

class Writers {
 public:
  using Clock = std::chrono::steady_clock;

  /// Holds new writers back while what a cut has kept waits to be read.
  struct Brake {
    Clock::time_point last_read;
    /// Nobody read for `patience`, so the writers went on.
    std::atomic<bool> gave_up{false};
  };

  explicit Writers(Clock::duration patience = std::chrono::seconds(10)) : patience_(patience) {}
  static Writers& OfProcess();

  /// Waits while writers are stopped or held back. A thread must not enter twice.
  void Enter() {
    if ((state_.fetch_add(1, std::memory_order_acquire) & kClosed) != 0) EnterClosed();
  }
  void Leave() {
    if (state_.fetch_sub(1, std::memory_order_release) == (kClosed | 1)) NotifyAll();
  }

  /// Waits until all writers have left; new ones wait until Resume.
  void Stop();
  void Resume();

  /// Holds writers back until Release; `brake->last_read` counts from now.
  void Hold(Brake* brake);
  /// Tells that a cut was read, and lets its writers go on if `release`.
  void Read(Brake* brake, bool release);

 private:
  static constexpr uint32_t kClosed = 1u << 31;

  void EnterClosed();
  void NotifyAll();
  void Open();
  void GiveUp();

  const Clock::duration patience_;
  // Number of writers, and whether a new one must look closer.
  std::atomic<uint32_t> state_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
  std::vector<Brake*> held_;
};

/// A writer for the length of a block.
class Writing {
 public:
  explicit Writing(bool writes = true) : writes_(writes) {
    if (writes_) Writers::OfProcess().Enter();
  }
  ~Writing() {
    if (writes_) Writers::OfProcess().Leave();
  }
  Writing(const Writing&) = delete;
  Writing& operator=(const Writing&) = delete;

 private:
  const bool writes_;
};

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_CUT_WRITERS_H_
