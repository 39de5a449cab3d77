// SPDX-License-Identifier: Apache-2.0
// Columns that are made of numbers of a request, without a table.
#ifndef PROCESSOR_KERNELS_DENSE_COLUMNS_H_
#define PROCESSOR_KERNELS_DENSE_COLUMNS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "src/kernels/embedding_request.h"

namespace processor {

/// dst[r * stride + c] = element c of row r of a feature [batch, width], as float, or += that; r from begin to end - 1,
/// of which the first is at dst.
void CopyNumbers(const FeatureView& feature, int64_t begin, int64_t end, int64_t width, bool add, float* dst,
                 int64_t stride);

/// The same with a float feature [batch, k] times a matrix [k, width].
void MultiplyByMatrix(const FeatureView& feature, int64_t begin, int64_t end, absl::Span<const float> matrix,
                      int64_t width, bool add, float* dst, int64_t stride);

}  // namespace processor

#endif  // PROCESSOR_KERNELS_DENSE_COLUMNS_H_
