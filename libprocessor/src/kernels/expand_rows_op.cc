// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/str_cat.h"
#include "src/kernels/repeat_row.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace processor {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

REGISTER_OP("RecExpandRows")
    .Input("value: T")
    .Input("like: Tlike")
    .Output("output: T")
    .Attr("T: type")
    .Attr("Tlike: type")
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle value = c->input(0), like = c->input(1);
      if (c->RankKnown(value)) {
        TF_RETURN_IF_ERROR(c->WithRankAtLeast(value, 1, &value));
        const DimensionHandle rows = c->RankKnown(like) && c->Rank(like) > 0 ? c->Dim(like, 0) : c->UnknownDim();
        TF_RETURN_IF_ERROR(c->ReplaceDim(value, 0, rows, &value));
      }
      c->set_output(0, value);
      return absl::OkStatus();
    })
    .Doc(R"doc(
Repeats one row as often as another tensor has rows.

value: [1, ...], or [batch, ...], which is passed on.
like: [batch, ...]; only its first dimension counts.
output: [batch, ...]
)doc");

class ExpandRowsOp : public tensorflow::OpKernel {
 public:
  explicit ExpandRowsOp(tensorflow::OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, CheckCopyable(name(), "value", input_type(0)));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor &value = context->input(0), &like = context->input(1);
    OP_REQUIRES(
        context, value.dims() >= 1 && like.dims() >= 1,
        absl::InvalidArgumentError(absl::StrCat("node '", name(), "': a scalar, expected value and like [rows, ...]")));
    const int64_t rows = like.dim_size(0);
    if (value.dim_size(0) == rows) {
      context->set_output(0, value);
      return;
    }
    OP_REQUIRES(context, value.dim_size(0) == 1,
                absl::InvalidArgumentError(absl::StrCat("node '", name(), "': value: ", value.dim_size(0),
                                                        " rows, expected 1 or ", rows, " as like has")));
    OP_REQUIRES_OK(context, RepeatRow(context, 0, value, rows));
  }
};

REGISTER_KERNEL_BUILDER(Name("RecExpandRows").Device(tensorflow::DEVICE_CPU), ExpandRowsOp);

}  // namespace
}  // namespace processor
