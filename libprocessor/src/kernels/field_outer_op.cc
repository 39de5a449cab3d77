// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/field_outer.h"
#include "src/kernels/row_shards.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace processor {
namespace {

namespace tf = tensorflow;

REGISTER_OP("RecFieldOuter")
    .Input("fields: float")
    .Input("others: float")
    .Output("products: float")
    .SetShapeFn([](tf::shape_inference::InferenceContext* context) -> absl::Status {
      tf::shape_inference::ShapeHandle fields, others;
      TF_RETURN_IF_ERROR(context->WithRank(context->input(0), 3, &fields));
      TF_RETURN_IF_ERROR(context->WithRank(context->input(1), 3, &others));
      tf::shape_inference::DimensionHandle rows, dim, pairs;
      TF_RETURN_IF_ERROR(context->Merge(context->Dim(fields, 0), context->Dim(others, 0), &rows));
      TF_RETURN_IF_ERROR(context->Merge(context->Dim(fields, 2), context->Dim(others, 2), &dim));
      TF_RETURN_IF_ERROR(context->Multiply(context->Dim(fields, 1), context->Dim(others, 1), &pairs));
      context->set_output(0, context->MakeShape({rows, dim, pairs}));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Products of all fields of one tensor with all of another, element by element.

fields: [rows, fields, dim].
others: [rows, others, dim].
products: [rows, dim, fields * others]; `products[r, e, i * others + j] = fields[r, i, e] * others[r, j, e]`.
)doc");

class FieldOuterOp : public tf::OpKernel {
 public:
  explicit FieldOuterOp(tf::OpKernelConstruction* context) : tf::OpKernel(context) {}

  void Compute(tf::OpKernelContext* context) override {
    const tf::Tensor &one = context->input(0), &other = context->input(1);
    OP_REQUIRES(context,
                one.dims() == 3 && other.dims() == 3 && one.dim_size(0) == other.dim_size(0) &&
                    one.dim_size(2) == other.dim_size(2),
                absl::InvalidArgumentError(absl::StrCat("fields, others: shapes ", one.shape().DebugString(), " and ",
                                                        other.shape().DebugString(),
                                                        ", expected [rows, fields, dim] with equal rows and dim")));
    const int64_t rows = one.dim_size(0), fields = one.dim_size(1), others = other.dim_size(1), dim = one.dim_size(2);
    tf::Tensor* result = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {rows, dim, fields * others}, &result));
    const float *left = one.flat<float>().data(), *right = other.flat<float>().data();
    float* dst = result->flat<float>().data();
    ForRows(context, rows, 2 * dim * fields * others, [&](int64_t begin, int64_t end) {
      float* scratch = ThreadScratch(fields + others);
      for (int64_t row = begin; row < end; ++row) {
        FieldOuter(left + row * fields * dim, fields, right + row * others * dim, others, dim, scratch,
                   dst + row * dim * fields * others);
      }
    });
  }
};

REGISTER_KERNEL_BUILDER(Name("RecFieldOuter").Device(tf::DEVICE_CPU), FieldOuterOp);

}  // namespace
}  // namespace processor
