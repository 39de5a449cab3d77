// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/version/timeline.h"

#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "src/base/log.h"

namespace processor {

int64_t Timeline::Next() {
  if (config_.start_step < 0) return -1;
  const int64_t since_start = step_.fetch_add(1, std::memory_order_relaxed) - config_.start_step;
  if (since_start < 0 || since_start % config_.interval_step != 0) return -1;
  const int64_t number = since_start / config_.interval_step;
  return number < config_.trace_count ? number : -1;
}

void Timeline::Write(int64_t number, const tensorflow::StepStats& stats) const {
  std::error_code error;
  std::filesystem::create_directories(config_.path, error);
  const std::string file = (std::filesystem::path(config_.path) / absl::StrCat("timeline-", number)).string();
  std::ofstream stream(file, std::ios::binary | std::ios::trunc);
  if (!stats.SerializeToOstream(&stream) || !stream.flush()) {
    Log(Severity::kWarning, absl::StrCat("timeline '", file, "': cannot be written"));
  }
}

}  // namespace processor
