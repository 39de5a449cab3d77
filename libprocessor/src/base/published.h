// SPDX-License-Identifier: Apache-2.0
// A shared object that many threads read all the time, and that is rarely replaced: the current version of a model, the
// routes of a host.
#ifndef PROCESSOR_BASE_PUBLISHED_H_
#define PROCESSOR_BASE_PUBLISHED_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "src/base/thread_number.h"

namespace processor {

/// A pointer that is read without a lock. Threads that read write to memory of their own part only: each part has a
/// reference count, which keeps one reference to the object. So an object that Exchange() has returned has a use_count() of
/// one as soon as no reader holds it any more.
template <class T>
class Published {
 public:
  Published() = default;
  explicit Published(std::shared_ptr<T> object) { Exchange(std::move(object)); }
  ~Published() {
    for (Part& part : parts_) delete part.copy.load(std::memory_order_acquire);
  }
  Published(const Published&) = delete;
  Published& operator=(const Published&) = delete;

  /// Returns the current object, or null. Any thread may call; it never waits. Once a thread has got an object, a thread
  /// that begins to read later does not get an earlier one.
  std::shared_ptr<T> Read() const {
    Copy copy = ReadPart(ThreadNumber() % kParts);
    const uint64_t newest = newest_.load(std::memory_order_seq_cst);
    if (copy.generation > newest) {
      RaiseNewest(copy.generation);
    } else if (copy.generation < newest) {
      copy = ReadPart(0);  // which Exchange() replaces first
      RaiseNewest(copy.generation);
    }
    return std::move(copy.object);
  }

  /// Replaces the object, and returns the old one. Any thread may call. Threads that read meanwhile may get either.
  std::shared_ptr<T> Exchange(std::shared_ptr<T> object) {
    std::lock_guard<std::mutex> lock(mutex_);
    ++generation_;
    std::array<std::unique_ptr<const Copy>, kParts> made;
    if (object != nullptr) {
      for (auto& part : made) {
        // A count of its own, which owns one reference.
        const auto holder = std::make_shared<std::shared_ptr<T>>(object);
        part = std::make_unique<const Copy>(Copy{{holder, object.get()}, generation_});
      }
    }
    for (size_t i = 0; i < kParts; ++i) {
      const std::unique_ptr<const Copy> old(parts_[i].copy.exchange(made[i].release(), std::memory_order_seq_cst));
      // A reader only copies the pointer, but may have lost its CPU.
      while (parts_[i].readers.load(std::memory_order_seq_cst) != 0) std::this_thread::yield();
    }
    return std::exchange(object_, std::move(object));
  }

 private:
  static constexpr size_t kParts = 16;
  struct Copy {
    std::shared_ptr<T> object;
    uint64_t generation = 0;
  };
  struct alignas(64) Part {
    std::atomic<size_t> readers{0};
    std::atomic<const Copy*> copy{nullptr};
  };

  Copy ReadPart(size_t number) const {
    Part& part = parts_[number];
    // Counted before the pointer is read: Exchange() waits for those that may have read the old one.
    part.readers.fetch_add(1, std::memory_order_seq_cst);
    const Copy* const current = part.copy.load(std::memory_order_seq_cst);
    Copy copy = current == nullptr ? Copy{} : *current;
    part.readers.fetch_sub(1, std::memory_order_release);
    return copy;
  }

  void RaiseNewest(uint64_t generation) const {
    uint64_t newest = newest_.load(std::memory_order_seq_cst);
    while (newest < generation && !newest_.compare_exchange_weak(newest, generation, std::memory_order_seq_cst)) {
    }
  }

  mutable std::array<Part, kParts> parts_;
  // The newest generation that a reader has got. Written once a generation, so it stays in the caches of all CPUs.
  alignas(64) mutable std::atomic<uint64_t> newest_{0};
  std::mutex mutex_;  // of those that replace it
  std::shared_ptr<T> object_;
  uint64_t generation_ = 0;
};

}  // namespace processor

#endif  // PROCESSOR_BASE_PUBLISHED_H_
