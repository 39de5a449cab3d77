// SPDX-License-Identifier: Apache-2.0
// The phase of a load and its cancellation, shared by the loading thread and those that report or cancel the load.
#ifndef PROCESSOR_RUNTIME_VERSION_LOAD_PROGRESS_H_
#define PROCESSOR_RUNTIME_VERSION_LOAD_PROGRESS_H_

#include <atomic>

#include "absl/status/status.h"
#include "src/runtime/requests/cancellation.h"

namespace processor {

struct LoadProgress {
  /// Cancels the load: between two steps, or at the next kernel of a warm-up request. Any thread may call.
  void GiveUp(const absl::Status& why) noexcept { cancellation.Request(why); }

  Cancellation cancellation;
  std::atomic<bool> warming{false};  // the variables are restored, and warm-up runs
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_VERSION_LOAD_PROGRESS_H_
