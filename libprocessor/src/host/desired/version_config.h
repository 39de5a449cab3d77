// SPDX-License-Identifier: Apache-2.0
// From a version of desired.json to the configuration that the runtime loads it with.
#ifndef PROCESSOR_HOST_DESIRED_VERSION_CONFIG_H_
#define PROCESSOR_HOST_DESIRED_VERSION_CONFIG_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "src/host/desired/desired_state.h"
#include "src/runtime/config/model_config.h"
#include "src/runtime/threads/cpuset.h"

namespace processor {

/// Makes the configuration of a version, with its CPUs among `allowed`; tells in the log of keys without effect.
/// \return INVALID_ARGUMENT that names the key.
absl::Status MakeVersionConfig(const DesiredVersion& wanted, int64_t number, const CpuSet& allowed,
                               ModelConfig* config);

/// Does the same for `cpuset` alone, which may change while the version serves.
absl::Status SetVersionCpus(const std::string& cpuset, const CpuSet& allowed, ModelConfig* config);

/// Checks what MakeVersionConfig() would make, but for the CPUs, and logs nothing.
absl::Status CheckVersionConfig(const DesiredVersion& wanted, int64_t number, ModelConfig* config);

/// One group of CPUs for each session: a single group is for all of them.
std::string CpusetPerSession(const std::string& cpuset, int sessions);

/// Whether a configuration says itself on which threads requests run.
bool SaysExecution(const ModelConfig& config);

}  // namespace processor

#endif  // PROCESSOR_HOST_DESIRED_VERSION_CONFIG_H_
