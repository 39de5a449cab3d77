// SPDX-License-Identifier: Apache-2.0
// A lock for many readers or one writer, whose waiting threads sleep.
//
// std::shared_mutex is no such lock with glibc: a thread that waits for a writer spins as long as that one is between two
// of its steps. If the system has stopped the writer there, that takes milliseconds of CPU time in a call of training.
// If threads wait, an unlock takes their mutex, so it may sleep until one of them that lost its CPU with it goes on.
#ifndef ELASTIC_TRAINING_STORAGE_SEGMENT_MUTEX_H_
#define ELASTIC_TRAINING_STORAGE_SEGMENT_MUTEX_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace elastic_training {

/// Has the functions of std::shared_mutex. Readers come before writers that wait.
class SegmentMutex {
 public:
  bool try_lock() { return TryTake(kWriter, kWriter | kReaders); }
  void lock() {
    if (!try_lock()) Wait([this] { return try_lock(); });
  }
  void unlock() {
    if (state_.exchange(0, std::memory_order_release) != kWriter) Wake();
  }

  bool try_lock_shared() { return TryTake(1, kWriter); }
  void lock_shared() {
    if (!try_lock_shared()) Wait([this] { return try_lock_shared(); });
  }
  void unlock_shared() {
    uint32_t expected = kWaiting;
    if (state_.fetch_sub(1, std::memory_order_release) != (kWaiting | 1)) return;
    // Whoever has taken the lock since then keeps the bit, and wakes.
    if (state_.compare_exchange_strong(expected, 0, std::memory_order_relaxed)) Wake();
  }

 private:
  static constexpr uint32_t kWriter = 1u << 31, kWaiting = 1u << 30, kReaders = kWaiting - 1;

  // Adds to the state unless it has one of some bits.
  bool TryTake(uint32_t added, uint32_t unless) {
    uint32_t state = state_.load(std::memory_order_relaxed);
    while ((state & unless) == 0) {
      if (state_.compare_exchange_weak(state, state + added, std::memory_order_acquire, std::memory_order_relaxed)) {
        return true;
      }
    }
    return false;
  }

  template <typename Try>
  void Wait(const Try& take) {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!take()) {
      uint32_t state = state_.load(std::memory_order_relaxed);
      // The bit is set only while somebody has the lock, who wakes this thread. This thread keeps mutex_ until it sleeps,
      // so the wake-up is not missed.
      if ((state & (kWriter | kReaders)) == 0) continue;
      if ((state & kWaiting) != 0 ||
          state_.compare_exchange_strong(state, state | kWaiting, std::memory_order_relaxed)) {
        released_.wait(lock);
      }
    }
  }
  void Wake() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
    }
    released_.notify_all();
  }

  std::atomic<uint32_t> state_{0};
  std::mutex mutex_;
  std::condition_variable released_;
};

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_STORAGE_SEGMENT_MUTEX_H_
