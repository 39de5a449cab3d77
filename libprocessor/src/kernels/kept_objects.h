// SPDX-License-Identifier: Apache-2.0
// Objects that requests borrow and return, so that their memory is not allocated for each request.
#ifndef PROCESSOR_KERNELS_KEPT_OBJECTS_H_
#define PROCESSOR_KERNELS_KEPT_OBJECTS_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace processor {

/// Owns as many objects as were ever in use at once. Any thread may borrow and return.
template <class T>
class KeptObjects {
 public:
  std::unique_ptr<T> Take() {
    {
      absl::MutexLock lock(&mutex_);
      if (!kept_.empty()) {
        std::unique_ptr<T> object = std::move(kept_.back());
        kept_.pop_back();
        return object;
      }
    }
    return std::make_unique<T>();
  }

  void Keep(std::unique_ptr<T> object) {
    absl::MutexLock lock(&mutex_);
    kept_.push_back(std::move(object));
  }

 private:
  absl::Mutex mutex_;
  std::vector<std::unique_ptr<T>> kept_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace processor

#endif  // PROCESSOR_KERNELS_KEPT_OBJECTS_H_
