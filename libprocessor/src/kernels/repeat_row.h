// SPDX-License-Identifier: Apache-2.0
#ifndef PROCESSOR_SRC_KERNELS_REPEAT_ROW_H_
#define PROCESSOR_SRC_KERNELS_REPEAT_ROW_H_

#include <algorithm>
#include <cstring>

#include "tensorflow/core/framework/tensor.h"

namespace processor {

/// Fills `dst` with the row `src` [1, ...]: numbers or strings.
inline void RepeatRow(const tensorflow::Tensor& src, tensorflow::Tensor* dst) {
  const int64_t rows = dst->dim_size(0);
  if (src.dtype() == tensorflow::DT_STRING) {
    const auto* row = src.flat<tensorflow::tstring>().data();
    auto* place = dst->flat<tensorflow::tstring>().data();
    for (int64_t r = 0; r < rows; ++r) place = std::copy_n(row, src.NumElements(), place);
    return;
  }
  const auto row = src.tensor_data();
  char* place = const_cast<char*>(dst->tensor_data().data());
  for (int64_t r = 0; r < rows && !row.empty(); ++r) std::memcpy(place + r * row.size(), row.data(), row.size());
}

}  // namespace processor

#endif  // PROCESSOR_SRC_KERNELS_REPEAT_ROW_H_
