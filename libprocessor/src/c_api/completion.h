// SPDX-License-Identifier: Apache-2.0
// Tells callers that asynchronous requests have ended: by a callback, or in a queue that the caller owns.
#ifndef PROCESSOR_C_API_COMPLETION_H_
#define PROCESSOR_C_API_COMPLETION_H_

#include <list>
#include <memory>
#include <mutex>

#include "absl/status/status.h"
#include "processor/processor.h"
#include "src/c_api/result.h"

struct processor_queue {
  int fd = -1;
  mutable std::mutex mutex;
  mutable std::list<processor_completion> completions;
};

namespace processor {

/// Copies and checks a caller's target.
absl::Status ReadTarget(const processor_target *src, processor_target *dst);

/// Tells the end of one request. The request owns it, and makes everything that it needs beforehand, since a failure on
/// the thread that tells the end could not be reported.
class Completion {
 public:
  explicit Completion(const processor_target &target) : target_(target), completion_(1) {}

  /// Tells the target. Called once.
  void Tell(const absl::Status &status, std::unique_ptr<processor_result> result) noexcept;

 private:
  const processor_target target_;
  std::list<processor_completion> completion_;  // one
};

}  // namespace processor

#endif  // PROCESSOR_C_API_COMPLETION_H_
