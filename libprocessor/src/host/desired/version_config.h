// SPDX-License-Identifier: Apache-2.0
// Makes the configuration that the runtime loads a version of desired.json with. The caller owns it.
#ifndef PROCESSOR_HOST_DESIRED_VERSION_CONFIG_H_
#define PROCESSOR_HOST_DESIRED_VERSION_CONFIG_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "src/host/desired/desired_state.h"
#include "src/runtime/config/model_config.h"
#include "src/runtime/threads/cpuset.h"

namespace processor {

/// Makes the configuration of a version, with its CPUs among `allowed`, and logs which keys have no effect.
/// \return INVALID_ARGUMENT that names the key.
absl::Status MakeVersionConfig(const DesiredVersion& wanted, int64_t number, const CpuSet& allowed,
                               ModelConfig* config);

/// Sets the CPUs of a configuration alone, which may change while the version serves.
absl::Status SetVersionCpus(const std::string& cpuset, const CpuSet& allowed, ModelConfig* config);

/// Makes the same as MakeVersionConfig() without the CPUs, and logs nothing.
absl::Status CheckVersionConfig(const DesiredVersion& wanted, int64_t number, ModelConfig* config);

/// Returns a text with one group of CPUs for each session: a single group is repeated for all of them.
std::string CpusetPerSession(const std::string& cpuset, int sessions);

/// Whether a configuration sets on which threads requests run.
bool SaysExecution(const ModelConfig& config);

}  // namespace processor

#endif  // PROCESSOR_HOST_DESIRED_VERSION_CONFIG_H_
