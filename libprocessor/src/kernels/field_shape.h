// SPDX-License-Identifier: Apache-2.0
// The shape of the input of interactions, which has the vectors of several features of a row side by side.
#ifndef PROCESSOR_KERNELS_FIELD_SHAPE_H_
#define PROCESSOR_KERNELS_FIELD_SHAPE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace processor {

/// The shape [rows, fields, dim]. The memory of a tensor is the same whether it has two or three dimensions.
struct FieldShape {
  int64_t rows = 0;
  int64_t fields = 0;
  int64_t dim = 0;
};

/// Reads the shape of `fields`. `dim`: the attribute of the op, 0 if the tensor has three dimensions.
/// \return INVALID_ARGUMENT for another shape.
inline absl::Status ReadFieldShape(const tensorflow::TensorShape& shape, int64_t dim, FieldShape* found) {
  if (dim == 0 && shape.dims() == 3) {
    *found = {shape.dim_size(0), shape.dim_size(1), shape.dim_size(2)};
    return absl::OkStatus();
  }
  int64_t width = 1;
  for (int i = 1; i < shape.dims(); ++i) width *= shape.dim_size(i);
  if (dim > 0 && shape.dims() >= 2 && width % dim == 0) {
    *found = {shape.dim_size(0), width / dim, dim};
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("fields: shape ", shape.DebugString(), " with dim ", dim,
                                                 ", expected [rows, fields, dim], or rows of fields * dim elements"));
}

/// Reads the number of rows of `fields` in the shape function of an op, and `dim` if it is known.
inline absl::Status InferFieldShape(tensorflow::shape_inference::InferenceContext* context,
                                    tensorflow::shape_inference::DimensionHandle* rows,
                                    tensorflow::shape_inference::DimensionHandle* dim) {
  tensorflow::shape_inference::ShapeHandle shape = context->input(0);
  int64_t attribute = 0;
  TF_RETURN_IF_ERROR(context->GetAttr("dim", &attribute));
  *rows = context->UnknownDim();
  *dim = attribute > 0 ? context->MakeDim(attribute) : context->UnknownDim();
  if (!context->RankKnown(shape)) return absl::OkStatus();
  const int64_t rank = context->Rank(shape);
  if (attribute == 0 && rank == 3) {
    *dim = context->Dim(shape, 2);
  } else if (attribute == 0 || rank < 2) {
    return absl::InvalidArgumentError(absl::StrCat("fields: shape ", context->DebugString(shape), " with dim ",
                                                   attribute,
                                                   ", expected [rows, fields, dim], or rows of fields * dim elements"));
  }
  *rows = context->Dim(shape, 0);
  return absl::OkStatus();
}

}  // namespace processor

#endif  // PROCESSOR_KERNELS_FIELD_SHAPE_H_
