// SPDX-License-Identifier: Apache-2.0
// How far a load has come, shared by the thread that loads and those that watch it.
#ifndef PROCESSOR_RUNTIME_VERSION_LOAD_PROGRESS_H_
#define PROCESSOR_RUNTIME_VERSION_LOAD_PROGRESS_H_

#include <atomic>

#include "absl/status/status.h"
#include "src/runtime/requests/cancellation.h"

namespace processor {

struct LoadProgress {
  /// Has the load given up: between two steps, or at the next kernel of a warm-up request.
  void GiveUp(const absl::Status& why) noexcept { cancellation.Request(why); }

  Cancellation cancellation;
  std::atomic<bool> warming{false};  // everything is restored, and is being warmed up
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_VERSION_LOAD_PROGRESS_H_
