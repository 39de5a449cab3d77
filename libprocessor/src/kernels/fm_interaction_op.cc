// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/field_shape.h"
#include "src/kernels/fm_interaction.h"
#include "src/kernels/row_shards.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace processor {
namespace {

namespace tf = tensorflow;

REGISTER_OP("RecFmInteraction")
    .Input("fields: float")
    .Output("interaction: float")
    .Attr("output: {'sum', 'vector'} = 'sum'")
    .Attr("dim: int >= 0 = 0")
    .Attr("keep_dims: bool = false")
    .SetShapeFn([](tf::shape_inference::InferenceContext* context) -> absl::Status {
      tf::shape_inference::DimensionHandle rows, dim;
      TF_RETURN_IF_ERROR(InferFieldShape(context, &rows, &dim));
      std::string output;
      bool keep_dims;
      TF_RETURN_IF_ERROR(context->GetAttr("output", &output));
      TF_RETURN_IF_ERROR(context->GetAttr("keep_dims", &keep_dims));
      if (output == "sum") dim = context->MakeDim(1);
      context->set_output(
          0, keep_dims ? context->MakeShape({rows, context->MakeDim(1), dim}) : context->MakeShape({rows, dim}));
      return absl::OkStatus();
    })
    .Doc(R"doc(
The pairwise term of factorization machines.

`0.5 * (square of the sum over fields - sum of the squares over fields)`: the sum of the products of all pairs of
fields, element by element, and with output "sum" the sum of the elements of that.

fields: [rows, fields, dim], or, with the attribute `dim`, any shape with fields * dim elements for each row.
interaction: [rows, 1], or [rows, dim] with output "vector"; [rows, 1, ...] with `keep_dims`.
)doc");

class FmInteractionOp : public tf::OpKernel {
 public:
  explicit FmInteractionOp(tf::OpKernelConstruction* context) : tf::OpKernel(context) {
    std::string output;
    OP_REQUIRES_OK(context, context->GetAttr("output", &output));
    OP_REQUIRES_OK(context, context->GetAttr("dim", &dim_));
    OP_REQUIRES_OK(context, context->GetAttr("keep_dims", &keep_dims_));
    output_ = output == "sum" ? FmOutput::kSum : FmOutput::kVector;
  }

  void Compute(tf::OpKernelContext* context) override {
    const tf::Tensor& fields = context->input(0);
    FieldShape shape;
    OP_REQUIRES_OK(context, ReadFieldShape(fields.shape(), dim_, &shape));
    const int64_t width = output_ == FmOutput::kSum ? 1 : shape.dim;
    tf::Tensor* result = nullptr;
    tf::TensorShape result_shape({shape.rows, width});
    if (keep_dims_) result_shape.InsertDim(1, 1);
    OP_REQUIRES_OK(context, context->allocate_output(0, result_shape, &result));
    const float* src = fields.flat<float>().data();
    float* dst = result->flat<float>().data();
    const int64_t stride = shape.fields * shape.dim;
    ForRows(context, shape.rows, 3 * stride, [&](int64_t begin, int64_t end) {
      FmInteraction(src + begin * stride, end - begin, shape.fields, shape.dim, output_, dst + begin * width);
    });
  }

 private:
  FmOutput output_ = FmOutput::kSum;
  int64_t dim_ = 0;
  bool keep_dims_ = false;
};

REGISTER_KERNEL_BUILDER(Name("RecFmInteraction").Device(tf::DEVICE_CPU), FmInteractionOp);

}  // namespace
}  // namespace processor
