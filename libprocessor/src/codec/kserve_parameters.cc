// SPDX-License-Identifier: Apache-2.0
#include "src/codec/kserve_parameters.h"

#include "absl/strings/str_cat.h"

namespace processor {

absl::Status RefuseParameter(std::string_view where, std::string_view name) {
  if (name == "classification") {
    return absl::InvalidArgumentError(
        absl::StrCat(where, " 'classification': not supported, expected a request for the scores themselves"));
  }
  if (name.substr(0, 14) == "shared_memory_") {
    return absl::InvalidArgumentError(
        absl::StrCat(where, " '", name, "': shared memory is not supported, expected values in the request"));
  }
  return absl::OkStatus();
}

}  // namespace processor
