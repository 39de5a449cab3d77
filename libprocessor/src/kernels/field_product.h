// SPDX-License-Identifier: Apache-2.0
// The outer products of PNN: products of the vectors of two features with a kernel for each pair. Any thread may call it.
#ifndef PROCESSOR_KERNELS_FIELD_PRODUCT_H_
#define PROCESSOR_KERNELS_FIELD_PRODUCT_H_

#include <cstdint>

#include "absl/types/span.h"
#include "src/kernels/cpu_features.h"

namespace processor {

/// The kernel of a pair: a number, a vector [dim] or a matrix [dim, dim].
enum class ProductKernel { kScalar, kVector, kMatrix };

/// Computes for pair p of fields x and y of row r:
/// scalar `dst[r, p] = kernel[p] · Σ_e x[e] · y[e]`, vector `Σ_e kernel[p, e] · x[e] · y[e]`,
/// matrix `Σ_e Σ_f kernel[e, p, f] · x[f] · y[e]`.
///
/// \param src [rows, fields, dim]
/// \param pairs `i · fields + j` for fields i (x) and j (y)
/// \param kernel [pairs], [pairs, dim] or [dim, pairs, dim]
/// \param scratch [dim]
/// \param dst [rows, pairs]
void FieldProduct(const float* src, int64_t rows, int64_t fields, int64_t dim, absl::Span<const int64_t> pairs,
                  const float* kernel, ProductKernel kind, float* scratch, float* dst, Isa isa = ThisCpu().isa);

}  // namespace processor

#endif  // PROCESSOR_KERNELS_FIELD_PRODUCT_H_
