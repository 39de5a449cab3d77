// SPDX-License-Identifier: Apache-2.0
// The elementwise products of all fields of one tensor with all fields of another, which are the inputs of the layers of a
// compressed interaction network (xDeepFM). Any thread may call it.
#ifndef PROCESSOR_KERNELS_FIELD_OUTER_H_
#define PROCESSOR_KERNELS_FIELD_OUTER_H_

#include <cstdint>

#include "src/kernels/cpu_features.h"

namespace processor {

/// Computes `dst[e, i · others + j] = one[i, e] · other[j, e]`, for one row of a batch.
///
/// \param one [fields, dim]
/// \param other [others, dim]
/// \param scratch `fields + others` floats
/// \param dst [dim, fields · others]
void FieldOuter(const float* one, int64_t fields, const float* other, int64_t others, int64_t dim, float* scratch,
                float* dst, Isa isa = ThisCpu().isa);

}  // namespace processor

#endif  // PROCESSOR_KERNELS_FIELD_OUTER_H_
