// SPDX-License-Identifier: Apache-2.0
// For those who check a configuration before anybody loads a model with it.
#ifndef PROCESSOR_RUNTIME_CONFIG_CONFIG_CHECK_H_
#define PROCESSOR_RUNTIME_CONFIG_CONFIG_CHECK_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "src/runtime/config/model_config.h"

namespace processor {

/// What BatchOptions may be at most, wherever they are written.
constexpr int64_t kMostBatchRows = int64_t{1} << 24;
constexpr int64_t kLongestBatchWaitUs = 10'000'000;

/// Reads a configuration as ParseModelConfig() does, and logs nothing.
absl::Status ReadModelConfig(std::string_view json, ConfigDialect dialect, ModelConfig* dst);

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_CONFIG_CONFIG_CHECK_H_
