// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "src/kernels/row_shards.h"
#include "src/kernels/target_attention.h"
#include "src/kernels/weighted_kernel.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace processor {
namespace {

namespace tf = tensorflow;

REGISTER_OP("RecTargetAttention")
    .Input("query: float")
    .Input("keys: float")
    .Input("masks: num_masks * Tmask")
    .Input("weights: num_weights * float")
    .Input("view: num_views * variant")
    .Output("pooled: float")
    .Attr("num_masks: int >= 0")
    .Attr("Tmask: {bool, float, int32, int64} = DT_BOOL")
    .Attr("num_weights: int >= 2")
    .Attr("parts: list({'query', 'key', 'query-key', 'key-query', 'product'}) >= 1")
    .Attr(
        "activations: list({'', 'relu', 'relu6', 'leaky_relu', 'elu', 'selu', 'sigmoid', 'tanh', 'gelu', 'gelu_tanh', "
        "'swish', 'softplus', 'prelu', 'dice'}) >= 1")
    .Attr("alphas: list(float) = []")
    .Attr("softmax: bool = false")
    .Attr("padding: float = 0")
    .Attr("scale: float = 1")
    .Attr("keep_dims: bool = false")
    .Attr("num_views: int >= 0 = 0")
    .Attr("formulas: list(string) = []")
    .SetShapeFn([](tf::shape_inference::InferenceContext* context) -> absl::Status {
      tf::shape_inference::ShapeHandle keys;
      TF_RETURN_IF_ERROR(context->WithRank(context->input(1), 3, &keys));
      bool keep_dims;
      TF_RETURN_IF_ERROR(context->GetAttr("keep_dims", &keep_dims));
      const auto rows = context->Dim(keys, 0), dim = context->Dim(keys, 2);
      context->set_output(
          0, keep_dims ? context->MakeShape({rows, context->MakeDim(1), dim}) : context->MakeShape({rows, dim}));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Pools histories by attention: the attention unit of DIN.

A network of dense layers is given `parts` of the query and of each key, side by side, and gives a score, the last layer
having one unit. Positions that do not count have the score `padding`. Scores are multiplied by `scale` and, with `softmax`,
made to sum up to 1; what is pooled is the sum of the keys times their scores.

query: [rows, dim], or of as many elements.
keys: [rows, length, dim].
masks: bool or float with as many elements as [rows, length], or integers: the length of each history. A position counts
  if all let it.
weights: for each layer the kernel [inputs, units], the bias [units], and the weights of its activation, [units] or [1]:
  alpha of prelu; alpha, scale and shift of dice.
pooled: [rows, dim], or [rows, 1, dim] with `keep_dims`.
activations: one for each layer.
alphas: one for each layer, or none; leaky_relu has its slope here.
view: at most one, of RecPinView: the op reads the weights at its epoch. The inputs hold those of epoch 0.
formulas: for each weight the name of the formula that computes it at later epochs, or '' if it never changes; none
  without a view.
)doc");

struct Named {
  std::string_view name;
  ActivationKind kind;
  int weights;
};

constexpr std::array kActivations = {
    Named{"", ActivationKind::kNone, 0},           Named{"relu", ActivationKind::kRelu, 0},
    Named{"relu6", ActivationKind::kRelu6, 0},     Named{"leaky_relu", ActivationKind::kLeakyRelu, 0},
    Named{"elu", ActivationKind::kElu, 0},         Named{"selu", ActivationKind::kSelu, 0},
    Named{"sigmoid", ActivationKind::kSigmoid, 0}, Named{"tanh", ActivationKind::kTanh, 0},
    Named{"gelu", ActivationKind::kGelu, 0},       Named{"gelu_tanh", ActivationKind::kGeluTanh, 0},
    Named{"swish", ActivationKind::kSwish, 0},     Named{"softplus", ActivationKind::kSoftplus, 0},
    Named{"prelu", ActivationKind::kPrelu, 1},     Named{"dice", ActivationKind::kDice, 3},
};

AttentionPart PartOf(std::string_view name) {
  if (name == "query") return AttentionPart::kQuery;
  if (name == "key") return AttentionPart::kKey;
  if (name == "query-key") return AttentionPart::kQueryMinusKey;
  return name == "key-query" ? AttentionPart::kKeyMinusQuery : AttentionPart::kProduct;
}

class TargetAttentionOp : public WeightedKernel<TargetAttention> {
 public:
  explicit TargetAttentionOp(tf::OpKernelConstruction* context) : WeightedKernel(context) {
    std::vector<std::string> parts, activations;
    OP_REQUIRES_OK(context, context->GetAttr("parts", &parts));
    OP_REQUIRES_OK(context, context->GetAttr("activations", &activations));
    OP_REQUIRES_OK(context, context->GetAttr("alphas", &alphas_));
    OP_REQUIRES_OK(context, context->GetAttr("softmax", &rule_.softmax));
    OP_REQUIRES_OK(context, context->GetAttr("padding", &rule_.padding));
    OP_REQUIRES_OK(context, context->GetAttr("scale", &rule_.scale));
    OP_REQUIRES_OK(context, context->GetAttr("keep_dims", &keep_dims_));
    OP_REQUIRES_OK(context, context->GetAttr("num_masks", &num_masks_));
    int64_t num_weights = 0;
    OP_REQUIRES_OK(context, context->GetAttr("num_weights", &num_weights));
    OP_REQUIRES_OK(context, SetWeights(context, 2 + num_masks_, num_weights));
    for (const std::string& part : parts) parts_.push_back(PartOf(part));
    int64_t weights = 0;
    for (const std::string& activation : activations) {
      for (const Named& known : kActivations) {
        if (known.name == activation) layers_.push_back(known);
      }
      weights += 2 + layers_.back().weights;
    }
    OP_REQUIRES(context, num_weights == weights,
                absl::InvalidArgumentError(
                    absl::StrCat("num_weights: ", num_weights, ", expected ", weights, " for these activations")));
    OP_REQUIRES(
        context, alphas_.empty() || alphas_.size() == layers_.size(),
        absl::InvalidArgumentError(absl::StrCat("alphas: ", alphas_.size(), ", expected none or ", layers_.size())));
  }

  ~TargetAttentionOp() override { ForgetViews(); }

  void Compute(tf::OpKernelContext* context) override {
    const tf::Tensor &query = context->input(0), &keys = context->input(1);
    const TargetAttention* made = nullptr;
    OP_REQUIRES_OK(context, Get(context, &made));
    const TargetAttention& unit = *made;
    const int64_t dim = unit.dim();
    OP_REQUIRES(context, keys.dims() == 3 && keys.dim_size(2) == dim,
                absl::InvalidArgumentError(
                    absl::StrCat("keys: shape ", keys.shape().DebugString(), ", expected [rows, length, ", dim, "]")));
    const int64_t rows = keys.dim_size(0), length = keys.dim_size(1);
    OP_REQUIRES(context, query.NumElements() == rows * dim,
                absl::InvalidArgumentError(absl::StrCat("query: shape ", query.shape().DebugString(), ", expected ",
                                                        rows, " of ", dim, " elements")));
    absl::InlinedVector<SequenceMask, 4> masks(num_masks_);
    for (int64_t i = 0; i < num_masks_; ++i) {
      OP_REQUIRES_OK(context, SequenceMask::Read(context->input(2 + i), rows, length, &masks[i]));
    }
    tf::TensorShape shape({rows, dim});
    if (keep_dims_) shape.InsertDim(1, 1);
    tf::Tensor* result = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, shape, &result));
    float* pooled = result->flat<float>().data();
    ForRows(context, rows, length * unit.position_cost(), [&](int64_t begin, int64_t end) {
      unit.Rows(query.flat<float>().data(), keys.flat<float>().data(), masks, begin, end, length,
                ThreadScratch(unit.scratch(length)), pooled);
    });
  }

 private:
  absl::Status Make(const Weights& weights, std::unique_ptr<TargetAttention>* unit) const override {
    std::vector<AttentionLayer> layers;
    std::vector<std::vector<float>> held;
    int64_t dim = 0, inputs = 0;
    size_t next = 0;
    for (const Named& kind : layers_) {
      const tf::Tensor& kernel = *weights[next];
      const bool first = layers.empty(), last = layers.size() + 1 == layers_.size();
      if (kernel.dims() != 2 || (first ? kernel.dim_size(0) % parts_.size() : kernel.dim_size(0) - inputs) != 0 ||
          kernel.NumElements() == 0 || (last && kernel.dim_size(1) != 1)) {
        return absl::InvalidArgumentError(
            absl::StrCat("weight ", next, ": shape ", kernel.shape().DebugString(), ", expected [",
                         first ? absl::StrCat("a multiple of ", parts_.size()) : absl::StrCat(inputs), ", ",
                         last ? "1]" : "units]"));
      }
      if (first) dim = kernel.dim_size(0) / parts_.size();
      inputs = kernel.dim_size(1);
      AttentionLayer layer;
      layer.units = inputs;
      layer.kernel = kernel.flat<float>().data();
      layer.activation.kind = kind.kind;
      if (!alphas_.empty()) layer.activation.alpha = alphas_[layers.size()];
      const float** pointers[] = {&layer.bias, &layer.activation.weight, &layer.activation.scale,
                                  &layer.activation.shift};
      for (int i = 0; i <= kind.weights; ++i) {
        const tf::Tensor& weight = *weights[next + 1 + i];
        if (weight.NumElements() != inputs && (weight.NumElements() != 1 || i == 0)) {
          return absl::InvalidArgumentError(absl::StrCat("weight ", next + 1 + i, ": shape ",
                                                         weight.shape().DebugString(), ", expected [", inputs, "]"));
        }
        // One number counts for all units.
        const float* data = weight.flat<float>().data();
        held.emplace_back(inputs, data[0]);
        if (weight.NumElements() == inputs) held.back().assign(data, data + inputs);
        *pointers[i] = held.back().data();
      }
      layers.push_back(layer);
      next += 2 + kind.weights;
    }
    *unit = std::make_unique<TargetAttention>(dim, parts_, layers, rule_);
    return absl::OkStatus();
  }

  std::vector<AttentionPart> parts_;
  std::vector<Named> layers_;
  std::vector<float> alphas_;
  AttentionRule rule_;
  bool keep_dims_ = false;
  int64_t num_masks_ = 0;
};

REGISTER_KERNEL_BUILDER(Name("RecTargetAttention").Device(tf::DEVICE_CPU), TargetAttentionOp);

}  // namespace
}  // namespace processor
