// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/config/batch_options.h"

#include <string>
#include <vector>

#include "src/runtime/config/config_check.h"
#include "src/runtime/config/config_reader.h"

namespace processor {
namespace {

const std::vector<std::string>& ModeNames() {
  static const auto* const names = new std::vector<std::string>{"off", "zero_wait", "timed"};
  return *names;
}

}  // namespace

absl::Status ParseBatchOptions(std::string_view json, BatchOptions* dst) {
  ConfigReader reader;
  if (absl::Status s = reader.Parse(json); !s.ok()) return s;
  BatchOptions options;
  int mode = static_cast<int>(options.mode);
  reader.Choice("mode", ModeNames(), &mode);
  options.mode = static_cast<BatchMode>(mode);
  reader.Int64("max_rows", 1, kMostBatchRows, &options.max_rows);
  reader.Int64("max_wait_us", 0, kLongestBatchWaitUs, &options.max_wait_us);
  if (absl::Status s = reader.Finish(); !s.ok()) return s;
  *dst = options;
  return absl::OkStatus();
}

nlohmann::ordered_json BatchOptionsJson(const BatchOptions& options) {
  return {{"mode", ModeNames()[static_cast<size_t>(options.mode)]},
          {"max_rows", options.max_rows},
          {"max_wait_us", options.max_wait_us}};
}

}  // namespace processor
