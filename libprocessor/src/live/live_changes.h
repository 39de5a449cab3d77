// SPDX-License-Identifier: Apache-2.0
// What the two sources of LiveModel share: the rows of a segment before they are served, and its errors.
#ifndef PROCESSOR_LIVE_LIVE_CHANGES_H_
#define PROCESSOR_LIVE_LIVE_CHANGES_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "src/live/live_model.h"

namespace processor {

struct LiveModel::PreparedRows {
  std::vector<std::pair<OverlayTable*, OverlayTable::Change>> of_tables;
  size_t of_others = 0;  // rows that another model has written already

  ~PreparedRows() {
    for (auto& [overlay, change] : of_tables) overlay->Abandon(&change);
  }
};

/// Returns a status whose message begins with a name.
inline absl::Status WithName(const std::string& name, const absl::Status& status) {
  return status.ok() ? status : absl::Status(status.code(), absl::StrCat(name, ": ", status.message()));
}

/// Returns INVALID_ARGUMENT.
template <typename... Parts>
absl::Status DoesNotFit(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

}  // namespace processor

#endif  // PROCESSOR_LIVE_LIVE_CHANGES_H_
