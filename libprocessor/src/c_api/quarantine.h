// SPDX-License-Identifier: Apache-2.0
// Keeps the memory of handles that have been freed. It is never returned to the allocator, so that a call with such a
// handle is recognized. Once 4,096 later handles have been freed, the memory is used for a new handle.
#ifndef PROCESSOR_C_API_QUARANTINE_H_
#define PROCESSOR_C_API_QUARANTINE_H_

#include <cstddef>
#include <deque>
#include <mutex>

namespace processor {

/// Owns the freed handles of one type. Any thread may call.
template <typename Handle>
class Quarantine {
 public:
  /// The quarantine of the process. It is never destroyed, since a host may free handles while the process exits.
  static Quarantine &Global() {
    static auto *const quarantine = new Quarantine;
    return *quarantine;
  }

  /// Returns a handle to use: one that has waited long enough, or a new one.
  Handle *Take() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (handles_.size() > kSize) {
        Handle *const handle = handles_.front();
        handles_.pop_front();
        return handle;
      }
    }
    return new Handle;
  }

  void Put(Handle *handle) {
    std::lock_guard<std::mutex> lock(mutex_);
    handles_.push_back(handle);
  }

 private:
  static constexpr size_t kSize = 4096;

  std::mutex mutex_;
  std::deque<Handle *> handles_;  // the one that was freed longest ago comes first
};

}  // namespace processor

#endif  // PROCESSOR_C_API_QUARANTINE_H_
