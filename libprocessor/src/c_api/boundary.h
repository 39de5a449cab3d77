// SPDX-License-Identifier: Apache-2.0
// The one way across the C boundary: statuses go into the caller's struct, no exception leaves, and structs of any size
// come in.
#ifndef PROCESSOR_C_API_BOUNDARY_H_
#define PROCESSOR_C_API_BOUNDARY_H_

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "processor/processor.h"
#include "src/runtime/requests/exception_status.h"

namespace processor {

/// Writes a failure into `error`, which may be null, and returns its code; writes nothing for OK.
processor_status Report(const absl::Status &status, processor_error *error) noexcept;

/// Runs `body`, which returns an absl::Status, and reports that status, or the exception that it has thrown.
template <typename Body>
processor_status Guard(processor_error *error, Body &&body) noexcept {
  return Report(Attempt(std::forward<Body>(body)), error);
}

/// Copies a struct that begins with struct_size. Members that the caller's version of it lacks are zero.
/// \return INVALID_ARGUMENT if the size is impossible, since the struct was not initialized.
template <typename Struct>
absl::Status ReadStruct(const Struct *src, const char *name, Struct *dst) {
  if (src == nullptr) return absl::InvalidArgumentError(absl::StrCat(name, ": NULL"));
  if (src->struct_size < sizeof(uint32_t) || src->struct_size > 65536) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": struct_size ", src->struct_size, ", expected sizeof of the struct, ", sizeof(Struct)));
  }
  *dst = Struct{};
  std::memcpy(dst, src, std::min<size_t>(src->struct_size, sizeof(Struct)));
  return absl::OkStatus();
}

/// Writes the members of a struct that the caller's version of it has.
template <typename Struct>
void WriteStruct(Struct src, Struct *dst) {
  const uint32_t size = dst->struct_size;
  src.struct_size = size;
  std::memcpy(dst, &src, std::min<size_t>(size, sizeof(Struct)));
}

/// Checks that a caller was compiled with a header that this library serves.
/// \return FAILED_PRECONDITION if not.
absl::Status CheckAbiVersion(uint32_t version);

/// Returns element `index` of an array whose elements have the struct_size of the first.
template <typename Struct>
const Struct *ElementAt(const Struct *first, size_t index) {
  return reinterpret_cast<const Struct *>(reinterpret_cast<const char *>(first) + index * first->struct_size);
}

}  // namespace processor

#endif  // PROCESSOR_C_API_BOUNDARY_H_
