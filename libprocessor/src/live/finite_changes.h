// SPDX-License-Identifier: Apache-2.0
// Changes with NaN or infinities, which most trainers write only by mistake.
#ifndef PROCESSOR_LIVE_FINITE_CHANGES_H_
#define PROCESSOR_LIVE_FINITE_CHANGES_H_

#include <string>

#include "absl/status/status.h"
#include "src/tables/delta_content.h"

namespace processor {

/// Returns how a message calls a changed row or default row of a table. `values`: where the row begins.
std::string NameOfRow(const DeltaTable& delta, const float* values);

/// Checks that all numbers of a table are finite. \return INVALID_ARGUMENT that names the row.
absl::Status CheckFinite(const DeltaTable& delta);
/// Likewise of a variable. \return INVALID_ARGUMENT that names the element.
absl::Status CheckFinite(const DeltaVariable& delta);

}  // namespace processor

#endif  // PROCESSOR_LIVE_FINITE_CHANGES_H_
