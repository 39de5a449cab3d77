// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "src/kernels/row_shards.h"
#include "src/kernels/sequence_mask.h"
#include "src/kernels/sequence_pooling.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace processor {
namespace {

namespace tf = tensorflow;

REGISTER_OP("RecSequencePooling")
    .Input("values: float")
    .Input("mask: Tmask")
    .Output("pooled: float")
    .Attr("Tmask: {bool, float, int32, int64}")
    .Attr("combiner: {'sum', 'mean', 'max'}")
    .Attr("epsilon: float = 0")
    .Attr("least: float = -3.4028235e+38")
    .Attr("padding: float = 0")
    .Attr("shift: bool = false")
    .Attr("by_length: bool = false")
    .Attr("keep_dims: bool = false")
    .SetShapeFn([](tf::shape_inference::InferenceContext* context) -> absl::Status {
      tf::shape_inference::ShapeHandle values;
      TF_RETURN_IF_ERROR(context->WithRank(context->input(0), 3, &values));
      bool keep_dims;
      TF_RETURN_IF_ERROR(context->GetAttr("keep_dims", &keep_dims));
      const auto rows = context->Dim(values, 0), dim = context->Dim(values, 2);
      context->set_output(
          0, keep_dims ? context->MakeShape({rows, context->MakeDim(1), dim}) : context->MakeShape({rows, dim}));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Sum, mean or maximum over the positions of padded sequences.

Sum and mean multiply each position by its weight; a mean divides by `max(sum of weights + epsilon, least)`, and with
`by_length` by the length as it was given, be it negative, in the place of that sum. In a maximum a position of weight 0 counts as
`padding`; with `shift`, each position counts as `value + (1 - weight) * padding`.

values: [rows, length, dim].
mask: the weights, bool or float with as many elements as [rows, length]; or integers: the length of each sequence.
pooled: [rows, dim], or [rows, 1, dim] with `keep_dims`.
)doc");

class SequencePoolingOp : public tf::OpKernel {
 public:
  explicit SequencePoolingOp(tf::OpKernelConstruction* context) : tf::OpKernel(context) {
    std::string combiner;
    OP_REQUIRES_OK(context, context->GetAttr("combiner", &combiner));
    OP_REQUIRES_OK(context, context->GetAttr("epsilon", &rule_.epsilon));
    OP_REQUIRES_OK(context, context->GetAttr("least", &rule_.least));
    OP_REQUIRES_OK(context, context->GetAttr("padding", &rule_.padding));
    OP_REQUIRES_OK(context, context->GetAttr("shift", &rule_.shift));
    OP_REQUIRES_OK(context, context->GetAttr("by_length", &by_length_));
    OP_REQUIRES_OK(context, context->GetAttr("keep_dims", &keep_dims_));
    rule_.combiner = combiner == "sum" ? Pooling::kSum : combiner == "mean" ? Pooling::kMean : Pooling::kMax;
  }

  void Compute(tf::OpKernelContext* context) override {
    const tf::Tensor& values = context->input(0);
    OP_REQUIRES(context, values.dims() == 3,
                absl::InvalidArgumentError(
                    absl::StrCat("values: shape ", values.shape().DebugString(), ", expected [rows, length, dim]")));
    const int64_t rows = values.dim_size(0), length = values.dim_size(1), dim = values.dim_size(2);
    SequenceMask mask;
    OP_REQUIRES_OK(context, SequenceMask::Read(context->input(1), rows, length, &mask));
    tf::TensorShape shape({rows, dim});
    if (keep_dims_) shape.InsertDim(1, 1);
    tf::Tensor* result = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, shape, &result));
    const float* src = values.flat<float>().data();
    float* dst = result->flat<float>().data();
    ForRows(context, rows, 2 * length * dim, [&](int64_t begin, int64_t end) {
      float* weights = ThreadScratch(length);
      for (int64_t row = begin; row < end; ++row) {
        mask.Row(row, weights);
        const float count = mask.Count(row, weights, by_length_);
        PoolSequence(src + row * length * dim, weights, length, dim, rule_, count, dst + row * dim);
      }
    });
  }

 private:
  PoolingRule rule_;
  bool by_length_ = false;
  bool keep_dims_ = false;
};

REGISTER_KERNEL_BUILDER(Name("RecSequencePooling").Device(tf::DEVICE_CPU), SequencePoolingOp);

}  // namespace
}  // namespace processor
