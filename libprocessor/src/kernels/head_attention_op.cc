// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/head_attention.h"
#include "src/kernels/row_shards.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace processor {
namespace {

namespace tf = tensorflow;

REGISTER_OP("RecHeadAttention")
    .Input("query: float")
    .Input("key: float")
    .Input("value: float")
    .Input("bias: num_biases * float")
    .Input("condition: num_conditions * bool")
    .Input("gate: num_gates * float")
    .Output("attended: float")
    .Attr("heads: int >= 1")
    .Attr("num_biases: int >= 0 = 0")
    .Attr("num_conditions: int >= 0 = 0")
    .Attr("num_gates: int >= 0 = 0")
    .Attr("scale: float = 1")
    .Attr("padding: float = 0")
    .Attr("keep_dims: bool = false")
    .SetShapeFn([](tf::shape_inference::InferenceContext* context) -> absl::Status {
      tf::shape_inference::ShapeHandle query, value;
      TF_RETURN_IF_ERROR(context->WithRankAtLeast(context->input(0), 3, &query));
      TF_RETURN_IF_ERROR(context->WithRankAtLeast(context->input(2), 3, &value));
      int64_t heads;
      bool keep_dims;
      TF_RETURN_IF_ERROR(context->GetAttr("heads", &heads));
      TF_RETURN_IF_ERROR(context->GetAttr("keep_dims", &keep_dims));
      tf::shape_inference::DimensionHandle width = context->UnknownDim(), dim = context->UnknownDim();
      if (context->RankKnown(value)) {
        width = context->MakeDim(1);
        for (int i = 2; i < context->Rank(value); ++i) {
          TF_RETURN_IF_ERROR(context->Multiply(width, context->Dim(value, i), &width));
        }
        TF_RETURN_IF_ERROR(context->Divide(width, context->MakeDim(heads), true, &dim));
      }
      const bool known = context->RankKnown(query);
      const auto rows = known ? context->Dim(query, 0) : context->UnknownDim();
      const auto positions = known ? context->Dim(query, 1) : context->UnknownDim();
      context->set_output(0, keep_dims ? context->MakeShape({rows, positions, context->MakeDim(heads), dim})
                                       : context->MakeShape({rows, positions, width}));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Attention of several heads, as in transformers.

For each head: `gate * softmax(select(condition, scale * query . key + bias, padding)) . value`.

query: [batch, queries, heads * dim], or [batch, queries, heads, dim].
key: [batch, keys, heads * dim], or [batch, keys, heads, dim].
value: [batch, keys, heads * value_dim], or [batch, keys, heads, value_dim].
bias: at most one, [batch or 1, heads or 1, queries or 1, keys or 1].
condition: at most one, of such a shape.
gate: at most one, [batch, queries].
attended: [batch, queries, heads * value_dim], or [batch, queries, heads, value_dim] with `keep_dims`.
)doc");

/// The sizes of a mask as strides; 0 where a dimension is 1.
struct Strides {
  int64_t batch = 0, head = 0, query = 0, key = 0;
};

absl::Status ReadStrides(const char* name, const tf::TensorShape& shape, int64_t batch, const AttentionShape& sizes,
                         Strides* found) {
  const int64_t whole[] = {batch, sizes.heads, sizes.queries, sizes.keys};
  int64_t* strides[] = {&found->batch, &found->head, &found->query, &found->key};
  bool fits = shape.dims() == 4;
  int64_t stride = 1;
  for (int i = 3; fits && i >= 0; --i) {
    fits = shape.dim_size(i) == 1 || shape.dim_size(i) == whole[i];
    *strides[i] = shape.dim_size(i) == 1 ? 0 : stride;
    stride *= shape.dim_size(i);
  }
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, ": shape ", shape.DebugString(), ", expected [", whole[0], ", ",
                                                 whole[1], ", ", whole[2], ", ", whole[3], "], or 1 in any place"));
}

class HeadAttentionOp : public tf::OpKernel {
 public:
  explicit HeadAttentionOp(tf::OpKernelConstruction* context) : tf::OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("heads", &heads_));
    OP_REQUIRES_OK(context, context->GetAttr("num_biases", &biases_));
    OP_REQUIRES_OK(context, context->GetAttr("num_conditions", &conditions_));
    OP_REQUIRES_OK(context, context->GetAttr("num_gates", &gates_));
    OP_REQUIRES_OK(context, context->GetAttr("scale", &rule_.scale));
    OP_REQUIRES_OK(context, context->GetAttr("padding", &rule_.padding));
    OP_REQUIRES_OK(context, context->GetAttr("keep_dims", &keep_dims_));
    OP_REQUIRES(context, biases_ <= 1 && conditions_ <= 1 && gates_ <= 1,
                absl::InvalidArgumentError(absl::StrCat("masks: ", biases_, " biases, ", conditions_, " conditions, ",
                                                        gates_, " gates, expected at most one of each")));
  }

  void Compute(tf::OpKernelContext* context) override {
    const tf::Tensor &query = context->input(0), &key = context->input(1), &value = context->input(2);
    AttentionShape shape;
    OP_REQUIRES_OK(context, ReadShape(query.shape(), key.shape(), value.shape(), &shape));
    const int64_t batch = query.dim_size(0);
    int next = 3;
    Masks masks;
    if (biases_ > 0) {
      const tf::Tensor& bias = context->input(next++);
      OP_REQUIRES_OK(context, ReadStrides("bias", bias.shape(), batch, shape, &masks.bias_strides));
      masks.bias = bias.flat<float>().data();
    }
    if (conditions_ > 0) {
      const tf::Tensor& condition = context->input(next++);
      OP_REQUIRES_OK(context, ReadStrides("condition", condition.shape(), batch, shape, &masks.condition_strides));
      masks.condition = condition.flat<bool>().data();
    }
    if (gates_ > 0) {
      const tf::Tensor& gate = context->input(next++);
      OP_REQUIRES(context, gate.NumElements() == batch * shape.queries,
                  absl::InvalidArgumentError(absl::StrCat("gate: shape ", gate.shape().DebugString(), ", expected [",
                                                          batch, ", ", shape.queries, "]")));
      masks.gate = gate.flat<float>().data();
    }
    tf::TensorShape result_shape({batch, shape.queries, shape.heads * shape.value_dim});
    if (keep_dims_) {
      result_shape.set_dim(2, shape.heads);
      result_shape.AddDim(shape.value_dim);
    }
    tf::Tensor* result = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, result_shape, &result));
    const float *queries = query.flat<float>().data(), *keys = key.flat<float>().data(),
                *values = value.flat<float>().data();
    float* dst = result->flat<float>().data();
    const int64_t scratch_size = AttentionScratch(shape);
    const int64_t cost = 2 * shape.heads * shape.queries * shape.keys * (shape.dim + shape.value_dim + 16);
    ForRows(context, batch, cost, [&](int64_t begin, int64_t end) {
      float* scratch = ThreadScratch(scratch_size);
      for (int64_t row = begin; row < end; ++row) {
        AttendHeads(shape, rule_, queries + row * shape.queries * shape.heads * shape.dim,
                    keys + row * shape.keys * shape.heads * shape.dim,
                    values + row * shape.keys * shape.heads * shape.value_dim, masks.Row(row, shape), scratch,
                    dst + row * shape.queries * shape.heads * shape.value_dim);
      }
    });
  }

 private:
  struct Masks {
    const float* bias = nullptr;
    const bool* condition = nullptr;
    const float* gate = nullptr;
    Strides bias_strides, condition_strides;

    AttentionMasks Row(int64_t row, const AttentionShape& shape) const {
      AttentionMasks found;
      if (bias != nullptr) {
        found.bias = {bias + row * bias_strides.batch, bias_strides.head, bias_strides.query, bias_strides.key};
      }
      if (condition != nullptr) {
        found.condition = {condition + row * condition_strides.batch, condition_strides.head, condition_strides.query,
                           condition_strides.key};
      }
      if (gate != nullptr) found.gate = gate + row * shape.queries;
      return found;
    }
  };

  /// Elements of a position, -1 where a tensor has none.
  static int64_t Width(const tf::TensorShape& shape) {
    if (shape.dims() < 3) return -1;
    int64_t width = 1;
    for (int i = 2; i < shape.dims(); ++i) width *= shape.dim_size(i);
    return width;
  }

  absl::Status ReadShape(const tf::TensorShape& query, const tf::TensorShape& key, const tf::TensorShape& value,
                         AttentionShape* shape) const {
    const int64_t width = Width(query), value_width = Width(value);
    const bool fits = width >= 0 && Width(key) == width && value_width >= 0 && query.dim_size(0) == key.dim_size(0) &&
                      key.dim_size(0) == value.dim_size(0) && key.dim_size(1) == value.dim_size(1) &&
                      width % heads_ == 0 && value_width % heads_ == 0;
    if (!fits) {
      return absl::InvalidArgumentError(absl::StrCat("query, key, value: shapes ", query.DebugString(), ", ",
                                                     key.DebugString(), ", ", value.DebugString(),
                                                     ", expected [batch, queries, ", heads_, " * dim], [batch, keys, ",
                                                     heads_, " * dim] and [batch, keys, ", heads_, " * value_dim]"));
    }
    *shape = {heads_, query.dim_size(1), key.dim_size(1), width / heads_, value_width / heads_};
    return absl::OkStatus();
  }

  int64_t heads_ = 1;
  bool keep_dims_ = false;
  int biases_ = 0, conditions_ = 0, gates_ = 0;
  HeadAttentionRule rule_;
};

REGISTER_KERNEL_BUILDER(Name("RecHeadAttention").Device(tf::DEVICE_CPU), HeadAttentionOp);

}  // namespace
}  // namespace processor
