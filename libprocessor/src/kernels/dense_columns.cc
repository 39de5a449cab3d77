// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/dense_columns.h"

namespace processor {
namespace {

template <typename T, bool kAdd>
void CopyAs(const T* src, int64_t rows, int64_t width, float* dst, int64_t stride) {
  for (int64_t r = 0; r < rows; ++r, src += width, dst += stride) {
    for (int64_t c = 0; c < width; ++c) {
      const auto value = static_cast<float>(src[c]);
      dst[c] = kAdd ? dst[c] + value : value;
    }
  }
}

template <typename T>
void Copy(const FeatureView& feature, int64_t begin, int64_t end, int64_t width, bool add, float* dst, int64_t stride) {
  const T* src = static_cast<const T*>(feature.data) + begin * width;
  (add ? CopyAs<T, true> : CopyAs<T, false>)(src, end - begin, width, dst, stride);
}

}  // namespace

void CopyNumbers(const FeatureView& feature, int64_t begin, int64_t end, int64_t width, bool add, float* dst,
                 int64_t stride) {
  switch (feature.type) {
    case tensorflow::DT_FLOAT:
      return Copy<float>(feature, begin, end, width, add, dst, stride);
    case tensorflow::DT_DOUBLE:
      return Copy<double>(feature, begin, end, width, add, dst, stride);
    case tensorflow::DT_INT8:
      return Copy<int8_t>(feature, begin, end, width, add, dst, stride);
    case tensorflow::DT_INT16:
      return Copy<int16_t>(feature, begin, end, width, add, dst, stride);
    case tensorflow::DT_INT32:
      return Copy<int32_t>(feature, begin, end, width, add, dst, stride);
    case tensorflow::DT_INT64:
      return Copy<int64_t>(feature, begin, end, width, add, dst, stride);
    case tensorflow::DT_BOOL:
    case tensorflow::DT_UINT8:
      return Copy<uint8_t>(feature, begin, end, width, add, dst, stride);
    case tensorflow::DT_UINT16:
      return Copy<uint16_t>(feature, begin, end, width, add, dst, stride);
    case tensorflow::DT_UINT32:
      return Copy<uint32_t>(feature, begin, end, width, add, dst, stride);
    case tensorflow::DT_UINT64:
      return Copy<uint64_t>(feature, begin, end, width, add, dst, stride);
    default:  // refused when the plan was read
      return;
  }
}

void MultiplyByMatrix(const FeatureView& feature, int64_t begin, int64_t end, absl::Span<const float> matrix,
                      int64_t width, bool add, float* dst, int64_t stride) {
  const int64_t k = static_cast<int64_t>(matrix.size()) / width;
  const float* src = static_cast<const float*>(feature.data) + begin * k;
  for (int64_t row = begin; row < end; ++row, src += k, dst += stride) {
    for (int64_t c = 0; c < width; ++c) {
      float sum = 0;
      for (int64_t i = 0; i < k; ++i) sum += src[i] * matrix[i * width + c];
      dst[c] = add ? dst[c] + sum : sum;
    }
  }
}

}  // namespace processor
