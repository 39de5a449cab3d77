// SPDX-License-Identifier: Apache-2.0
// What is known of the precision of a model that follows a timeline. Plain data.
#ifndef PROCESSOR_RUNTIME_FOLLOW_PRECISION_STATE_H_
#define PROCESSOR_RUNTIME_FOLLOW_PRECISION_STATE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "nlohmann/json.hpp"

namespace processor {

struct PrecisionState {
  std::string precision;         // what towers compute with: "fp32", "bf16", "bf16 weights" or "int8"
  std::string reason;            // for it
  bool fell_back = false;        // a check has failed
  std::string outcome;           // of the last check, or why there is none, as a sentence
  std::optional<int64_t> epoch;  // that was checked last
  uint64_t checks = 0;
  // Of the last check:
  size_t requests = 0;
  int64_t rows = 0;
  double max_difference = 0;
  double rank_correlation_loss = 0;
  double cpu_ms = 0;

  nlohmann::ordered_json Json() const {
    return {{"precision", precision},
            {"reason", reason},
            {"fell_back", fell_back},
            {"outcome", outcome},
            {"epoch", epoch.has_value() ? nlohmann::ordered_json(*epoch) : nlohmann::ordered_json()},
            {"checks", checks},
            {"requests", requests},
            {"rows", rows},
            {"max_difference", max_difference},
            {"rank_correlation_loss", rank_correlation_loss},
            {"cpu_ms", cpu_ms}};
  }
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_FOLLOW_PRECISION_STATE_H_
