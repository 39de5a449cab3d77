// SPDX-License-Identifier: Apache-2.0
// The tables of functions (row_math.h) of the forms that are compiled in their own files.
#ifndef PROCESSOR_KERNELS_ROW_MATH_TABLES_H_
#define PROCESSOR_KERNELS_ROW_MATH_TABLES_H_

#include "src/kernels/row_math.h"

namespace processor {

const RowMath& RowMathAvx2();
const RowMath& RowMathAvx512();

}  // namespace processor

#endif  // PROCESSOR_KERNELS_ROW_MATH_TABLES_H_
