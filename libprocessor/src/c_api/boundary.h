// SPDX-License-Identifier: Apache-2.0
// The one way across the C boundary: statuses into the caller's struct, no exception out, structs of any size in.
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

/// Writes a failure into `error` (may be null) and answers its code; does nothing for OK.
processor_status Report(const absl::Status &status, processor_error *error) noexcept;

/// Runs `body`, which answers an absl::Status, and turns whatever comes of it into a status.
template <typename Body>
processor_status Guard(processor_error *error, Body &&body) noexcept {
  return Report(Attempt(std::forward<Body>(body)), error);
}

/// Copies a struct that begins with struct_size; what the caller's version of it lacks is zero.
/// \return INVALID_ARGUMENT if the size cannot be: the struct was not initialised.
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

/// Writes as much of a struct as the caller's version of it has.
template <typename Struct>
void WriteStruct(Struct src, Struct *dst) {
  const uint32_t size = dst->struct_size;
  src.struct_size = size;
  std::memcpy(dst, &src, std::min<size_t>(size, sizeof(Struct)));
}

/// \return FAILED_PRECONDITION if a caller was compiled with a header that this library does not serve.
absl::Status CheckAbiVersion(uint32_t version);

/// Element `index` of an array whose elements have the size that the first of them says.
template <typename Struct>
const Struct *ElementAt(const Struct *first, size_t index) {
  return reinterpret_cast<const Struct *>(reinterpret_cast<const char *>(first) + index * first->struct_size);
}

}  // namespace processor

#endif  // PROCESSOR_C_API_BOUNDARY_H_
