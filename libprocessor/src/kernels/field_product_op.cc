// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <vector>

#include "src/kernels/field_pairs.h"
#include "src/kernels/field_product.h"
#include "src/kernels/field_shape.h"
#include "src/kernels/row_shards.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace processor {
namespace {

namespace tf = tensorflow;

REGISTER_OP("RecProduct")
    .Input("fields: float")
    .Input("kernel: float")
    .Output("products: float")
    .Attr("kind: {'scalar', 'vector', 'matrix'}")
    .Attr("pairs: list(int)")
    .Attr("num_fields: int >= 1")
    .Attr("dim: int >= 0 = 0")
    .SetShapeFn(InferPairShape)
    .Doc(R"doc(
Products of pairs of fields, weighted: the outer products of PNN.

For pair p of fields x and y: kind "scalar" gives `kernel[p] * sum(x * y)`, "vector" `sum(kernel[p] * x * y)`, "matrix"
`sum over e, f of kernel[e, p, f] * x[f] * y[e]`.

fields: [rows, num_fields, dim], or, with the attribute `dim`, any shape with num_fields * dim elements for each row.
kernel: of as many elements as [pairs], [pairs, dim] or [dim, pairs, dim].
products: [rows, number of pairs].
pairs: `i * num_fields + j` for fields i (x) and j (y).
)doc");

class FieldProductOp : public tf::OpKernel {
 public:
  explicit FieldProductOp(tf::OpKernelConstruction* context) : tf::OpKernel(context) {
    std::string kind;
    OP_REQUIRES_OK(context, ReadFieldPairs(context, 0, &pairs_, &num_fields_));
    OP_REQUIRES_OK(context, context->GetAttr("dim", &dim_));
    OP_REQUIRES_OK(context, context->GetAttr("kind", &kind));
    kind_ = kind == "scalar"   ? ProductKernel::kScalar
            : kind == "vector" ? ProductKernel::kVector
                               : ProductKernel::kMatrix;
  }

  void Compute(tf::OpKernelContext* context) override {
    const tf::Tensor& fields = context->input(0);
    FieldShape shape;
    OP_REQUIRES_OK(context, ReadFieldShape(fields.shape(), dim_, &shape));
    OP_REQUIRES_OK(context, CheckNumFields(shape, num_fields_));
    const int64_t pairs = static_cast<int64_t>(pairs_.size()), dim = shape.dim;
    const int64_t weights = kind_ == ProductKernel::kScalar ? 1 : kind_ == ProductKernel::kVector ? dim : dim * dim;
    OP_REQUIRES(context, context->input(1).NumElements() == pairs * weights,
                absl::InvalidArgumentError(absl::StrCat("kernel: shape ", context->input(1).shape().DebugString(),
                                                        ", expected ", pairs * weights, " elements")));
    tf::Tensor* result = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {shape.rows, pairs}, &result));
    const float* src = fields.flat<float>().data();
    const float* kernel = context->input(1).flat<float>().data();
    float* dst = result->flat<float>().data();
    const int64_t stride = shape.fields * dim;
    ForRows(context, shape.rows, pairs * std::max(weights, dim), [&](int64_t begin, int64_t end) {
      FieldProduct(src + begin * stride, end - begin, shape.fields, dim, pairs_, kernel, kind_, ThreadScratch(dim),
                   dst + begin * pairs);
    });
  }

 private:
  ProductKernel kind_ = ProductKernel::kScalar;
  std::vector<int64_t> pairs_;
  int64_t num_fields_ = 0;
  int64_t dim_ = 0;
};

REGISTER_KERNEL_BUILDER(Name("RecProduct").Device(tf::DEVICE_CPU), FieldProductOp);

}  // namespace
}  // namespace processor
