// SPDX-License-Identifier: Apache-2.0
// What a host can do: the keys of desired.json that it reads, and the ops that it has besides TensorFlow's. Writers of
// desired.json learn it from actual.json, since hosts of several releases may follow one state. Any thread may call these.
#ifndef PROCESSOR_HOST_VERSIONS_HOST_FEATURES_H_
#define PROCESSOR_HOST_VERSIONS_HOST_FEATURES_H_

#include <string>
#include <vector>

#include "src/host/desired/desired_state.h"

namespace processor {

/// Returns the names of all features, sorted: those of DesiredFeatures(), and "op:RecDenseTower".
const std::vector<std::string>& HostFeatures();

/// Gives each version that needs a feature that this host lacks a fault, so that the version is refused and not loaded.
void RefuseWhatIsBeyond(const std::vector<std::string>& features, DesiredState* state);

}  // namespace processor

#endif  // PROCESSOR_HOST_VERSIONS_HOST_FEATURES_H_
