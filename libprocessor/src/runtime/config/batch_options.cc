// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/config/batch_options.h"

#include <string>
#include <vector>

#include "src/runtime/config/config_check.h"

namespace processor {
namespace {

const std::vector<std::string>& ModeNames() {
  static const auto* const names = new std::vector<std::string>{"off", "zero_wait", "timed"};
  return *names;
}

}  // namespace

void ReadBatchOptions(const JsonValue& value, BatchOptions* dst) {
  value.Allow({"mode", "max_rows", "max_wait_us"});
  int mode = static_cast<int>(dst->mode);
  value.Member("mode").Choice(ModeNames(), &mode);
  dst->mode = static_cast<BatchMode>(mode);
  value.Member("max_rows").Integer(1, kMostBatchRows, &dst->max_rows);
  value.Member("max_wait_us").Integer(0, kLongestBatchWaitUs, &dst->max_wait_us);
}

absl::Status ParseBatchOptions(std::string_view json, BatchOptions* dst) {
  nlohmann::json document;
  if (absl::Status s = ParseJson("options", json, &document); !s.ok()) return s;
  absl::Status fault;
  BatchOptions options;
  ReadBatchOptions(JsonValue("", document, &fault), &options);
  if (fault.ok()) *dst = options;
  return fault;
}

nlohmann::ordered_json BatchOptionsJson(const BatchOptions& options) {
  return {{"mode", ModeNames()[static_cast<size_t>(options.mode)]},
          {"max_rows", options.max_rows},
          {"max_wait_us", options.max_wait_us}};
}

}  // namespace processor
