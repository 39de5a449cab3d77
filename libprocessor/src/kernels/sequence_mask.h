// SPDX-License-Identifier: Apache-2.0
// Which positions of padded sequences count, by a mask or by lengths.
#ifndef PROCESSOR_KERNELS_SEQUENCE_MASK_H_
#define PROCESSOR_KERNELS_SEQUENCE_MASK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "tensorflow/core/framework/tensor.h"

namespace processor {

/// A view of a tensor, which must outlive it. Any thread may read.
class SequenceMask {
 public:
  /// \param tensor bool or float, with as many elements as [rows, length]; or int32 or int64 lengths, [rows] or [rows, 1]
  /// \return INVALID_ARGUMENT for another shape.
  static absl::Status Read(const tensorflow::Tensor& tensor, int64_t rows, int64_t length, SequenceMask* mask) {
    const bool by_length = tensor.dtype() == tensorflow::DT_INT32 || tensor.dtype() == tensorflow::DT_INT64;
    if (tensor.NumElements() != (by_length ? rows : rows * length)) {
      return absl::InvalidArgumentError(absl::StrCat("mask: shape ", tensor.shape().DebugString(), ", expected ",
                                                     by_length ? "lengths of " : "a mask of ", rows, " sequences",
                                                     by_length ? "" : absl::StrCat(" of ", length)));
    }
    mask->dtype_ = tensor.dtype();
    mask->data_ = tensor.data();
    mask->length_ = length;
    return absl::OkStatus();
  }

  /// Writes the weight of each position of a sequence to weights [length]: 1 or 0, or the number of a float mask.
  void Row(int64_t row, float* weights) const {
    switch (dtype_) {
      case tensorflow::DT_BOOL:
        return Copy(static_cast<const bool*>(data_) + row * length_, weights);
      case tensorflow::DT_FLOAT:
        return Copy(static_cast<const float*>(data_) + row * length_, weights);
      case tensorflow::DT_INT32:
        return Fill(static_cast<const int32_t*>(data_)[row], weights);
      default:
        return Fill(static_cast<const int64_t*>(data_)[row], weights);
    }
  }

  /// Returns the divisor of a mean: the sum of the weights, or the given length, even if it exceeds the positions.
  float Count(int64_t row, const float* weights, bool as_given) const {
    if (as_given && dtype_ == tensorflow::DT_INT32) return static_cast<float>(static_cast<const int32_t*>(data_)[row]);
    if (as_given && dtype_ == tensorflow::DT_INT64) return static_cast<float>(static_cast<const int64_t*>(data_)[row]);
    float sum = 0;
    for (int64_t t = 0; t < length_; ++t) sum += weights[t];
    return sum;
  }

 private:
  template <typename T>
  void Copy(const T* src, float* weights) const {
    for (int64_t t = 0; t < length_; ++t) weights[t] = static_cast<float>(src[t]);
  }

  void Fill(int64_t count, float* weights) const {
    for (int64_t t = 0; t < length_; ++t) weights[t] = t < count ? 1.0f : 0.0f;
  }

  tensorflow::DataType dtype_ = tensorflow::DT_INVALID;
  const void* data_ = nullptr;
  int64_t length_ = 0;
};

}  // namespace processor

#endif  // PROCESSOR_KERNELS_SEQUENCE_MASK_H_
