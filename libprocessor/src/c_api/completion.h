// SPDX-License-Identifier: Apache-2.0
// Where asynchronous requests end: a callback of the caller's, or a queue.
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

/// Checks a caller's target.
absl::Status ReadTarget(const processor_target *src, processor_target *dst);

/// The end of one request. All that it needs is made beforehand: it comes from threads where nobody could do anything
/// about a failure.
class Completion {
 public:
  explicit Completion(const processor_target &target) : target_(target), completion_(1) {}

  /// Tells the target, once.
  void Tell(const absl::Status &status, std::unique_ptr<processor_result> result) noexcept;

 private:
  const processor_target target_;
  std::list<processor_completion> completion_;  // one
};

}  // namespace processor

#endif  // PROCESSOR_C_API_COMPLETION_H_
