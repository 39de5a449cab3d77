// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/requests/exception_status.h"

#include <exception>
#include <new>

namespace processor {
namespace {

// Never destroyed: threads of a host may run out of memory while the process exits.
const absl::Status* const no_memory = new absl::Status(absl::StatusCode::kResourceExhausted, "no memory left");

}  // namespace

const absl::Status& NoMemoryStatus() noexcept { return *no_memory; }

absl::Status StatusWithoutThrowing(absl::StatusCode code, std::string_view message) noexcept {
  try {
    return absl::Status(code, message);
  } catch (...) {
    return absl::Status(code, "");  // a status without a message is stored in place
  }
}

absl::Status StatusOfException() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return NoMemoryStatus();
  } catch (const std::exception& e) {
    return StatusWithoutThrowing(absl::StatusCode::kInternal, e.what());
  } catch (...) {
    return StatusWithoutThrowing(absl::StatusCode::kInternal, "an exception of unknown type");
  }
}

}  // namespace processor
