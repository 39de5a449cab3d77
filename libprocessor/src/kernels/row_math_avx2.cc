// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/cpu_features.h"

#define PROCESSOR_ROW_MATH PROCESSOR_TARGET_AVX2
#include "src/kernels/row_math_functions.h"
#include "src/kernels/row_math_tables.h"

namespace processor {

const RowMath& RowMathAvx2() { return kRowMath; }

}  // namespace processor
