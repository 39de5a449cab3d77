// SPDX-License-Identifier: Apache-2.0
// Memory of handles that have been freed: it is never returned to the allocator, so that a call on such a handle finds
// out. It waits until 4,096 later handles have been freed, then becomes the handle of something new.
#ifndef PROCESSOR_C_API_QUARANTINE_H_
#define PROCESSOR_C_API_QUARANTINE_H_

#include <cstddef>
#include <deque>
#include <mutex>

namespace processor {

template <typename Handle>
class Quarantine {
 public:
  /// The one of the process; never destroyed, since threads of a host may free handles while the process exits.
  static Quarantine &Global() {
    static auto *const quarantine = new Quarantine;
    return *quarantine;
  }

  /// A handle to use: one that has waited long enough, or a new one.
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
  std::deque<Handle *> handles_;  // longest ago first
};

}  // namespace processor

#endif  // PROCESSOR_C_API_QUARANTINE_H_
