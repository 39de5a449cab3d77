// SPDX-License-Identifier: Apache-2.0
// Reads what a host follows: desired.json without the parts that are wrong. The caller owns what is read.
#ifndef PROCESSOR_HOST_DESIRED_ACCEPTED_STATE_H_
#define PROCESSOR_HOST_DESIRED_ACCEPTED_STATE_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "src/host/desired/desired_state.h"

namespace processor {

/// The file in which a host keeps the text of what it follows, to serve it after a restart.
constexpr char kAcceptedFile[] = "accepted.json";

/// What a host follows.
struct AcceptedState {
  DesiredState state;
  std::string text;   // a desired.json that says the same, without faults that refuse a model
  std::string error;  // what is not followed, for people; empty if everything is
};

/// Reads desired.json for a host. `former` is the text that was accepted before, "" if there is none: a model that is
/// refused stays as it is there, or is not served. A version that is refused is kept with its fault, and not told in
/// `error`.
/// \return as ParseDesiredState().
absl::Status AcceptDesired(std::string_view text, std::string_view former, std::string_view host_id,
                           AcceptedState* accepted);

}  // namespace processor

#endif  // PROCESSOR_HOST_DESIRED_ACCEPTED_STATE_H_
