// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <vector>

#include "src/kernels/dot_interaction.h"
#include "src/kernels/field_pairs.h"
#include "src/kernels/field_shape.h"
#include "src/kernels/row_shards.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace processor {
namespace {

namespace tf = tensorflow;

REGISTER_OP("RecDotInteraction")
    .Input("fields: float")
    .Output("products: float")
    .Attr("pairs: list(int)")
    .Attr("num_fields: int >= 1")
    .Attr("dim: int >= 0 = 0")
    .SetShapeFn(InferPairShape)
    .Doc(R"doc(
Dot products of pairs of fields.

fields: [rows, num_fields, dim], or, with the attribute `dim`, any shape with num_fields * dim elements for each row.
products: [rows, number of pairs].
pairs: `i * num_fields + j` for fields i and j, or -1 for a zero.
)doc");

class DotInteractionOp : public tf::OpKernel {
 public:
  explicit DotInteractionOp(tf::OpKernelConstruction* context) : tf::OpKernel(context) {
    std::vector<int64_t> pairs;
    OP_REQUIRES_OK(context, ReadFieldPairs(context, -1, &pairs, &num_fields_));
    OP_REQUIRES_OK(context, context->GetAttr("dim", &dim_));
    pairs_ = std::make_unique<DotPairs>(pairs, num_fields_);
  }

  void Compute(tf::OpKernelContext* context) override {
    const tf::Tensor& fields = context->input(0);
    FieldShape shape;
    OP_REQUIRES_OK(context, ReadFieldShape(fields.shape(), dim_, &shape));
    OP_REQUIRES_OK(context, CheckNumFields(shape, num_fields_));
    tf::Tensor* result = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {shape.rows, pairs_->size()}, &result));
    const float* src = fields.flat<float>().data();
    float* dst = result->flat<float>().data();
    const int64_t stride = shape.fields * shape.dim, size = pairs_->size();
    ForRows(context, shape.rows, shape.fields * stride + 4 * size, [&](int64_t begin, int64_t end) {
      float* scratch = ThreadScratch(pairs_->scratch(shape.dim));
      pairs_->Rows(src + begin * stride, end - begin, shape.dim, scratch, dst + begin * size);
    });
  }

 private:
  std::unique_ptr<DotPairs> pairs_;
  int64_t num_fields_ = 0;
  int64_t dim_ = 0;
};

REGISTER_KERNEL_BUILDER(Name("RecDotInteraction").Device(tf::DEVICE_CPU), DotInteractionOp);

}  // namespace
}  // namespace processor
