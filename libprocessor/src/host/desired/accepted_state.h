// SPDX-License-Identifier: Apache-2.0
// What a host follows: desired.json, less what is wrong in it.
#ifndef PROCESSOR_HOST_DESIRED_ACCEPTED_STATE_H_
#define PROCESSOR_HOST_DESIRED_ACCEPTED_STATE_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "src/host/desired/desired_state.h"

namespace processor {

/// Where a host keeps the text of what it follows, to serve it after a restart.
constexpr char kAcceptedFile[] = "accepted.json";

struct AcceptedState {
  DesiredState state;
  std::string text;   // a desired.json that says the same, with nothing that refuses a model
  std::string error;  // what is not followed, for people; empty: nothing
};

/// Reads desired.json for a host. A model that is refused stays as it is in `former`, the text of what was accepted before
/// ("": nothing), or is not served; a version that is refused is there with its fault, and not in `error`.
/// \return as ParseDesiredState().
absl::Status AcceptDesired(std::string_view text, std::string_view former, std::string_view host_id,
                           AcceptedState* accepted);

}  // namespace processor

#endif  // PROCESSOR_HOST_DESIRED_ACCEPTED_STATE_H_
