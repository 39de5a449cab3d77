// SPDX-License-Identifier: Apache-2.0
// Exceptions as statuses, also where there is no memory left to say so: making most statuses allocates.
#ifndef PROCESSOR_RUNTIME_REQUESTS_EXCEPTION_STATUS_H_
#define PROCESSOR_RUNTIME_REQUESTS_EXCEPTION_STATUS_H_

#include <string_view>
#include <utility>

#include "absl/status/status.h"

namespace processor {

/// RESOURCE_EXHAUSTED, made when the library was loaded.
const absl::Status& NoMemoryStatus() noexcept;

/// A status with a text, or without it if there is no memory for one.
absl::Status StatusWithoutThrowing(absl::StatusCode code, std::string_view message) noexcept;

/// The exception that is being handled: to be called in a handler only.
absl::Status StatusOfException() noexcept;

/// Runs `body`, which answers an absl::Status, and turns whatever comes of it into one.
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
