// SPDX-License-Identifier: Apache-2.0
// Checks a configuration before a model is loaded with it.
#ifndef PROCESSOR_RUNTIME_CONFIG_CONFIG_CHECK_H_
#define PROCESSOR_RUNTIME_CONFIG_CONFIG_CHECK_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "src/runtime/config/model_config.h"

namespace processor {

/// The largest values of BatchOptions in every configuration.
constexpr int64_t kMostBatchRows = int64_t{1} << 24;
constexpr int64_t kLongestBatchWaitUs = 10'000'000;

/// Reads a configuration as ParseModelConfig() does, and logs nothing.
absl::Status ReadModelConfig(std::string_view json, ConfigDialect dialect, ModelConfig* dst);

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_CONFIG_CONFIG_CHECK_H_
