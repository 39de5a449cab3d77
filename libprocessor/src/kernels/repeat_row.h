// SPDX-License-Identifier: Apache-2.0
// Repeats rows of numbers or strings, for RecCollapseRows and RecExpandRows. Any thread may call these functions.
#ifndef PROCESSOR_SRC_KERNELS_REPEAT_ROW_H_
#define PROCESSOR_SRC_KERNELS_REPEAT_ROW_H_

#include <algorithm>
#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/types.h"

namespace processor {

/// Returns INVALID_ARGUMENT unless the input with the name `input` has numbers or strings, which can be copied.
inline absl::Status CheckCopyable(const std::string& node, const std::string& input, tensorflow::DataType type) {
  if (type == tensorflow::DT_STRING || tensorflow::DataTypeCanUseMemcpy(type)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("node '", node, "': ", input, " is ", tensorflow::DataTypeString(type),
                                                 ", expected numbers or strings"));
}

/// Makes output `number` of `rows` copies of the row `src` [1, ...].
inline absl::Status RepeatRow(tensorflow::OpKernelContext* context, int number, const tensorflow::Tensor& src,
                              int64_t rows) {
  tensorflow::TensorShape shape = src.shape();
  if (absl::Status set = shape.SetDimWithStatus(0, rows); !set.ok()) return set;
  tensorflow::Tensor* dst = nullptr;
  if (absl::Status made = context->allocate_output(number, shape, &dst); !made.ok()) return made;
  if (src.dtype() == tensorflow::DT_STRING) {
    const auto* row = src.flat<tensorflow::tstring>().data();
    auto* place = dst->flat<tensorflow::tstring>().data();
    for (int64_t r = 0; r < rows; ++r) place = std::copy_n(row, src.NumElements(), place);
    return absl::OkStatus();
  }
  const auto row = src.tensor_data();
  char* place = const_cast<char*>(dst->tensor_data().data());
  for (int64_t r = 0; r < rows && !row.empty(); ++r) std::memcpy(place + r * row.size(), row.data(), row.size());
  return absl::OkStatus();
}

}  // namespace processor

#endif  // PROCESSOR_SRC_KERNELS_REPEAT_ROW_H_
