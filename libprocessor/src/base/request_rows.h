// SPDX-License-Identifier: Apache-2.0
// The number of rows that one request may have by default.
#ifndef PROCESSOR_BASE_REQUEST_ROWS_H_
#define PROCESSOR_BASE_REQUEST_ROWS_H_

#include <cstdint>

namespace processor {

constexpr int64_t kDefaultMaxRows = int64_t{1} << 20;

}  // namespace processor

#endif  // PROCESSOR_BASE_REQUEST_ROWS_H_
