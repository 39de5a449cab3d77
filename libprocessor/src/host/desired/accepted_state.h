// SPDX-License-Identifier: Apache-2.0
// Reads the state that a host follows: desired.json without its faulty parts. Pure functions; the caller owns the
// result.
#ifndef PROCESSOR_HOST_DESIRED_ACCEPTED_STATE_H_
#define PROCESSOR_HOST_DESIRED_ACCEPTED_STATE_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "src/host/desired/desired_state.h"

namespace processor {

/// The file in which a host keeps the accepted text, to serve the same after a restart.
constexpr char kAcceptedFile[] = "accepted.json";

/// What a host follows.
struct AcceptedState {
  DesiredState state;
  std::string text;   // a desired.json with the same state, without faults that refuse a model
  std::string error;  // which parts are not followed, and why; empty if all are
};

/// Reads desired.json for a host. `former` is the text that was accepted before, "" if there is none: a refused model
/// keeps its state from there, or is not served. A refused version is kept with its fault, and is not part of `error`.
/// \return as ParseDesiredState().
absl::Status AcceptDesired(std::string_view text, std::string_view former, std::string_view host_id,
                           AcceptedState* accepted);

}  // namespace processor

#endif  // PROCESSOR_HOST_DESIRED_ACCEPTED_STATE_H_
