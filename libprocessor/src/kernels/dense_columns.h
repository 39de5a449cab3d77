// SPDX-License-Identifier: Apache-2.0
// Columns that are computed from numbers of a request, without a table. Any thread may call these functions.
#ifndef PROCESSOR_KERNELS_DENSE_COLUMNS_H_
#define PROCESSOR_KERNELS_DENSE_COLUMNS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "src/kernels/embedding_request.h"

namespace processor {

/// Writes rows [begin, end) of a feature [batch, width] as floats to `dst`, or adds them to it. The first row is at `dst`, the
/// next one `stride` floats later.
void CopyNumbers(const FeatureView& feature, int64_t begin, int64_t end, int64_t width, bool add, float* dst,
                 int64_t stride);

/// Writes or adds the product of a float feature [batch, k] with a matrix [k, width] in the same way.
void MultiplyByMatrix(const FeatureView& feature, int64_t begin, int64_t end, absl::Span<const float> matrix,
                      int64_t width, bool add, float* dst, int64_t stride);

}  // namespace processor

#endif  // PROCESSOR_KERNELS_DENSE_COLUMNS_H_
