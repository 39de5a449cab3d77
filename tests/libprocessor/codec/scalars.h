// SPDX-License-Identifier: Apache-2.0
// The scalars of a tensor in a repeated field of generated code, and back.
#ifndef PROCESSOR_TESTS_CODEC_SCALARS_H_
#define PROCESSOR_TESTS_CODEC_SCALARS_H_

#include <type_traits>

#include "tensorflow/core/framework/tensor.h"

namespace processor::oracle {

/// Scalars in an element: two in a complex number.
inline int64_t ScalarsIn(tensorflow::DataType dtype) {
  return dtype == tensorflow::DT_COMPLEX64 || dtype == tensorflow::DT_COMPLEX128 ? 2 : 1;
}

/// Appends the scalars of a tensor, which are of type T, to a repeated field.
template <typename T, typename Field>
void AppendScalars(const tensorflow::Tensor& tensor, Field* field) {
  const T* scalars = static_cast<const T*>(tensor.data());
  const int64_t count = tensor.NumElements() * ScalarsIn(tensor.dtype());
  for (int64_t i = 0; i < count; ++i) field->Add(static_cast<typename Field::value_type>(scalars[i]));
}

/// Makes a tensor of the scalars of a field; false if they are not exactly as many as the shape wants.
template <typename T, typename Field>
bool CopyScalars(const Field& field, tensorflow::DataType dtype, const tensorflow::TensorShape& shape,
                 tensorflow::Tensor* dst) {
  const int64_t per_element = ScalarsIn(dtype);
  if (field.size() % per_element != 0 || field.size() / per_element != shape.num_elements()) return false;
  tensorflow::Tensor tensor(dtype, shape);
  T* scalars = static_cast<T*>(tensor.data());
  for (int i = 0; i < field.size(); ++i) scalars[i] = static_cast<T>(field.Get(i));
  *dst = std::move(tensor);
  return true;
}

}  // namespace processor::oracle

#endif  // PROCESSOR_TESTS_CODEC_SCALARS_H_
