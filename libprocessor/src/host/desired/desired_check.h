// SPDX-License-Identifier: Apache-2.0
// Checks before a desired state is written whether hosts would serve it, by the rules with which they read it. Any
// thread may call.
#ifndef PROCESSOR_HOST_DESIRED_DESIRED_CHECK_H_
#define PROCESSOR_HOST_DESIRED_DESIRED_CHECK_H_

#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "src/host/desired/desired_state.h"
#include "src/runtime/threads/cpuset.h"

namespace processor {

/// Lists the parts that hosts would refuse. No file is opened: only a load can show whether a path contains a model.
///
/// \param allowed  the CPUs that hosts may use
/// \return as ParseDesiredState().
absl::Status CheckDesired(std::string_view text, const CpuSet& allowed, std::vector<DesiredFault>* faults);

}  // namespace processor

#endif  // PROCESSOR_HOST_DESIRED_DESIRED_CHECK_H_
