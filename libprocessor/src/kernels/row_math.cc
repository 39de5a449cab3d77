// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/row_math.h"

#include <cstring>

#define PROCESSOR_ROW_MATH
#include "src/kernels/row_math_functions.h"
#include "src/kernels/row_math_tables.h"

namespace processor {

const RowMath& RowMathFor(Isa isa) {
  switch (isa) {
    case Isa::kAvx512:
      return RowMathAvx512();
    case Isa::kAvx2:
      return RowMathAvx2();
    case Isa::kPlain:
      break;
  }
  return kRowMath;
}

void CopyRows(int64_t rows, int64_t n, SrcRows src, DstRows dst) {
  if (src.stride == n && dst.stride == n) {
    std::memcpy(dst.data, src.data, static_cast<size_t>(rows * n) * sizeof(float));
    return;
  }
  for (int64_t r = 0; r < rows; ++r) {
    std::memcpy(dst.data + r * dst.stride, src.data + r * src.stride, static_cast<size_t>(n) * sizeof(float));
  }
}

}  // namespace processor
