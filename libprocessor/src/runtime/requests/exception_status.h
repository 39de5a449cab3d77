// SPDX-License-Identifier: Apache-2.0
// Turns exceptions into statuses, even if no memory is left: most statuses allocate.
#ifndef PROCESSOR_RUNTIME_REQUESTS_EXCEPTION_STATUS_H_
#define PROCESSOR_RUNTIME_REQUESTS_EXCEPTION_STATUS_H_

#include <string_view>
#include <utility>

#include "absl/status/status.h"

namespace processor {

/// Returns RESOURCE_EXHAUSTED, made when the library was loaded.
const absl::Status& NoMemoryStatus() noexcept;

/// Makes a status with a text, or without one if there is no memory for it.
absl::Status StatusWithoutThrowing(absl::StatusCode code, std::string_view message) noexcept;

/// Returns the status of the exception that is being handled. To be called in a handler only.
absl::Status StatusOfException() noexcept;

/// Runs `body`, which returns an absl::Status, and returns that status, or that of the exception that it has thrown.
template <typename Body>
absl::Status Attempt(Body&& body) noexcept {
  try {
    return std::forward<Body>(body)();
  } catch (...) {
    return StatusOfException();
  }
}

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_REQUESTS_EXCEPTION_STATUS_H_
