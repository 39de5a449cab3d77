// SPDX-License-Identifier: Apache-2.0
// Objects that requests borrow and return, so that their memory is not allocated for each request.
#ifndef PROCESSOR_BASE_KEPT_OBJECTS_H_
#define PROCESSOR_BASE_KEPT_OBJECTS_H_

#include <array>
#include <atomic>
#include <memory>
#include <utility>

#include "src/base/thread_number.h"

namespace processor {

/// Keeps about as many objects as were ever in use at once, and at most kPlaces. Any thread may borrow and return; no thread
/// waits.
///
/// Each thread has a place of its own, which it shares with others only if there are more threads than places. So a thread
/// mostly gets back the object that it returned last, which may still be in the cache of its core.
template <class T>
class KeptObjects {
 public:
  static constexpr size_t kPlaces = 64;

  KeptObjects() = default;
  ~KeptObjects() {
    for (Place& place : places_) delete place.object.load(std::memory_order_relaxed);
  }
  KeptObjects(const KeptObjects&) = delete;
  KeptObjects& operator=(const KeptObjects&) = delete;

  /// Borrows an object; null if there is none.
  std::unique_ptr<T> TakeIfAny() {
    const size_t first = ThreadNumber();
    for (size_t i = 0; i < kPlaces; ++i) {
      std::atomic<T*>& object = places_[(first + i) % kPlaces].object;
      if (object.load(std::memory_order_relaxed) == nullptr) continue;
      if (T* taken = object.exchange(nullptr, std::memory_order_acquire)) return std::unique_ptr<T>(taken);
    }
    return nullptr;
  }

  /// Borrows an object, or makes one.
  std::unique_ptr<T> Take() {
    std::unique_ptr<T> object = TakeIfAny();
    return object != nullptr ? std::move(object) : std::make_unique<T>();
  }

  /// Returns an object.
  void Keep(std::unique_ptr<T> object) {
    const size_t first = ThreadNumber();
    for (size_t i = 0; i < kPlaces; ++i) {
      T* none = nullptr;
      std::atomic<T*>& place = places_[(first + i) % kPlaces].object;
      if (place.load(std::memory_order_relaxed) != nullptr) continue;
      if (place.compare_exchange_strong(none, object.get(), std::memory_order_release, std::memory_order_relaxed)) {
        (void)object.release();
        return;
      }
    }
  }

 private:
  struct alignas(64) Place {
    std::atomic<T*> object{nullptr};
  };

  std::array<Place, kPlaces> places_;
};

}  // namespace processor

#endif  // PROCESSOR_BASE_KEPT_OBJECTS_H_
