// SPDX-License-Identifier: Apache-2.0
// The options by which the requests of a model are batched.
#ifndef PROCESSOR_RUNTIME_CONFIG_BATCH_OPTIONS_H_
#define PROCESSOR_RUNTIME_CONFIG_BATCH_OPTIONS_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"
#include "src/base/json_value.h"

namespace processor {

enum class BatchMode {
  kOff,       // each request runs alone, as soon as it comes
  kZeroWait,  // a free session runs all waiting requests that fit; no request waits for later ones
  kTimed,     // a session waits until enough rows have come, or the first request has waited long enough
};

struct BatchOptions {
  BatchMode mode = BatchMode::kOff;
  int64_t max_rows = 256;      // of one run, unless a single request has more
  int64_t max_wait_us = 1000;  // kTimed: of any request

  bool operator==(const BatchOptions& other) const {
    return mode == other.mode && max_rows == other.max_rows && max_wait_us == other.max_wait_us;
  }
};

/// Reads {"mode": "off" | "zero_wait" | "timed", "max_rows": N, "max_wait_us": N}; absent keys leave `dst` alone.
void ReadBatchOptions(const JsonValue& value, BatchOptions* dst);

/// Reads the same from a text; absent keys have their defaults.
/// \return INVALID_ARGUMENT for what is not JSON, another type, an unknown key, or a value out of its range.
absl::Status ParseBatchOptions(std::string_view json, BatchOptions* dst);

/// Writes options as the JSON that ParseBatchOptions() reads.
nlohmann::ordered_json BatchOptionsJson(const BatchOptions& options);

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_CONFIG_BATCH_OPTIONS_H_
