// SPDX-License-Identifier: Apache-2.0
// Reads the attributes of ops over pairs of fields: `num_fields`, and `pairs` with a number `i · num_fields + j` for each.
#ifndef PROCESSOR_KERNELS_FIELD_PAIRS_H_
#define PROCESSOR_KERNELS_FIELD_PAIRS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "src/kernels/field_shape.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace processor {

// Pairs are looked up with 32 bits; no model has nearly as many.
constexpr int64_t kMostFields = 16383;

/// Reads the attributes of a kernel.
/// \param least -1 where a pair may be -1, else 0
/// \return INVALID_ARGUMENT for a number that is not a pair.
inline absl::Status ReadFieldPairs(tensorflow::OpKernelConstruction* context, int64_t least,
                                   std::vector<int64_t>* pairs, int64_t* num_fields) {
  TF_RETURN_IF_ERROR(context->GetAttr("pairs", pairs));
  TF_RETURN_IF_ERROR(context->GetAttr("num_fields", num_fields));
  if (*num_fields < 1 || *num_fields > kMostFields) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_fields: ", *num_fields, ", expected a number from 1 to ", kMostFields));
  }
  for (int64_t pair : *pairs) {
    if (pair < least || pair >= *num_fields * *num_fields) {
      return absl::InvalidArgumentError(
          absl::StrCat("pairs: ", pair, ", expected a number from ", least, " to ", *num_fields * *num_fields - 1));
    }
  }
  return absl::OkStatus();
}

/// \return INVALID_ARGUMENT if the input does not have the number of fields of the op.
inline absl::Status CheckNumFields(const FieldShape& shape, int64_t num_fields) {
  if (shape.fields == num_fields) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("fields: ", shape.fields, " fields, expected ", num_fields));
}

/// The shape function of these ops: [rows, number of pairs].
inline absl::Status InferPairShape(tensorflow::shape_inference::InferenceContext* context) {
  tensorflow::shape_inference::DimensionHandle rows, dim;
  TF_RETURN_IF_ERROR(InferFieldShape(context, &rows, &dim));
  std::vector<int64_t> pairs;
  TF_RETURN_IF_ERROR(context->GetAttr("pairs", &pairs));
  context->set_output(0, context->MakeShape({rows, context->MakeDim(static_cast<int64_t>(pairs.size()))}));
  return absl::OkStatus();
}

}  // namespace processor

#endif  // PROCESSOR_KERNELS_FIELD_PAIRS_H_
