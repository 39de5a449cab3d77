// SPDX-License-Identifier: Apache-2.0
// The pairwise term of factorization machines: the sum of the elementwise products of all pairs of fields. Any thread may
// call it.
#ifndef PROCESSOR_KERNELS_FM_INTERACTION_H_
#define PROCESSOR_KERNELS_FM_INTERACTION_H_

#include <cstdint>

#include "src/kernels/cpu_features.h"

namespace processor {

/// The result for each row: a vector [dim], or its sum [1].
enum class FmOutput { kSum, kVector };

/// Computes `dst[r, e] = 0.5 · ((Σ_f src[r, f, e])² − Σ_f src[r, f, e]²)`, or the sum of this over e.
///
/// \param src [rows, fields, dim]
/// \param dst [rows, dim] or [rows]
void FmInteraction(const float* src, int64_t rows, int64_t fields, int64_t dim, FmOutput output, float* dst,
                   Isa isa = ThisCpu().isa);

}  // namespace processor

#endif  // PROCESSOR_KERNELS_FM_INTERACTION_H_
