// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <vector>

#include "src/kernels/cross_network.h"
#include "src/kernels/row_shards.h"
#include "src/kernels/weighted_kernel.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace processor {
namespace {

namespace tf = tensorflow;

REGISTER_OP("RecCrossNetwork")
    .Input("x: float")
    .Input("kernels: num_kernels * float")
    .Input("biases: num_biases * float")
    .Input("view: num_views * variant")
    .Output("crossed: float")
    .Attr("num_kernels: int >= 1")
    .Attr("num_biases: int >= 0")
    .Attr("version: {'vector', 'matrix', 'low_rank'}")
    .Attr("transposed: bool = false")
    .Attr("num_views: int >= 0 = 0")
    .Attr("formulas: list(string) = []")
    .SetShapeFn([](tf::shape_inference::InferenceContext* context) -> absl::Status {
      tf::shape_inference::ShapeHandle x;
      TF_RETURN_IF_ERROR(context->WithRank(context->input(0), 2, &x));
      context->set_output(0, x);
      return absl::OkStatus();
    })
    .Doc(R"doc(
The cross network of DCN, all layers.

With version "vector" a layer is `x_{l+1} = x_0 * sum(x_l * w_l) + b_l + x_l`, with "matrix"
`x_{l+1} = x_0 * (x_l W_l + b_l) + x_l`; with "low_rank" W_l is the product of two matrices.

x: [rows, width].
kernels: for each layer w_l of width elements, or W_l [width, width], or two matrices [width, rank] and [rank, width].
biases: for each layer, of width elements; or none.
crossed: [rows, width].
transposed: whether matrices are given transposed.
view: at most one, of RecPinView: the op reads the weights at its epoch. The inputs hold those of epoch 0.
formulas: for each weight the name of the formula that computes it at later epochs, or '' if it never changes; none
  without a view.
)doc");

/// A cross network that has been packed.
struct CrossNetwork {
  int64_t width = 0;
  std::unique_ptr<const CrossVectors> vectors;    // either these
  std::unique_ptr<const CrossMatrices> matrices;  // or these
};

class CrossNetworkOp : public WeightedKernel<CrossNetwork> {
 public:
  explicit CrossNetworkOp(tf::OpKernelConstruction* context) : WeightedKernel(context) {
    std::string version;
    OP_REQUIRES_OK(context, context->GetAttr("version", &version));
    OP_REQUIRES_OK(context, context->GetAttr("transposed", &transposed_));
    OP_REQUIRES_OK(context, context->GetAttr("num_kernels", &num_kernels_));
    OP_REQUIRES_OK(context, context->GetAttr("num_biases", &num_biases_));
    is_vector_ = version == "vector";
    low_rank_ = version == "low_rank";
    OP_REQUIRES_OK(context, SetWeights(context, 1, num_kernels_ + num_biases_));
    const int64_t layers = low_rank_ ? num_kernels_ / 2 : num_kernels_;
    OP_REQUIRES(context, !low_rank_ || num_kernels_ % 2 == 0,
                absl::InvalidArgumentError(
                    absl::StrCat("num_kernels: ", num_kernels_, ", expected two for each layer of low rank")));
    OP_REQUIRES(context, num_biases_ == 0 || num_biases_ == layers,
                absl::InvalidArgumentError(absl::StrCat("num_biases: ", num_biases_, ", expected none or ", layers)));
  }

  ~CrossNetworkOp() override { ForgetViews(); }

  void Compute(tf::OpKernelContext* context) override {
    const tf::Tensor& x = context->input(0);
    const CrossNetwork* made = nullptr;
    OP_REQUIRES_OK(context, Get(context, &made));
    const CrossNetwork& network = *made;
    OP_REQUIRES(context, x.dims() == 2 && x.dim_size(1) == network.width,
                absl::InvalidArgumentError(
                    absl::StrCat("x: shape ", x.shape().DebugString(), ", expected [rows, ", network.width, "]")));
    tf::Tensor* result = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, x.shape(), &result));
    const float* src = x.flat<float>().data();
    float* dst = result->flat<float>().data();
    const int64_t cost = network.vectors ? 2 * (num_kernels_ + 1) * network.width : network.matrices->row_cost();
    ForRows(context, x.dim_size(0), cost, [&](int64_t begin, int64_t end) {
      const int64_t offset = begin * network.width;
      if (network.vectors) {
        network.vectors->Rows(src + offset, end - begin, dst + offset);
      } else {
        float* scratch = ThreadScratch(network.matrices->scratch());
        network.matrices->Rows(src + offset, end - begin, scratch, dst + offset);
      }
    });
  }

 private:
  absl::Status Make(const Weights& weights, std::unique_ptr<CrossNetwork>* network) const override {
    *network = std::make_unique<CrossNetwork>();
    int64_t& width = (*network)->width;
    int64_t rank = 0;
    TF_RETURN_IF_ERROR(Measure(weights, &width, &rank));
    std::vector<const float*> kernels, biases;
    for (size_t i = 0; i < weights.size(); ++i) {
      (i < num_kernels_ ? kernels : biases).push_back(weights[i]->flat<float>().data());
    }
    if (is_vector_) {
      (*network)->vectors = std::make_unique<CrossVectors>(kernels, biases, width);
    } else {
      (*network)->matrices = std::make_unique<CrossMatrices>(kernels, biases, width, rank, transposed_);
    }
    return absl::OkStatus();
  }

  /// Finds width and rank and checks that all weights have shapes for them.
  absl::Status Measure(const Weights& weights, int64_t* width, int64_t* rank) const {
    const tf::Tensor& first = *weights[0];
    if (is_vector_) {
      *width = first.NumElements();
    } else if (first.dims() == 2) {
      *width = first.dim_size(transposed_ ? 1 : 0);
      *rank = low_rank_ ? first.dim_size(transposed_ ? 0 : 1) : 0;
    }
    for (size_t i = 0; i < weights.size(); ++i) {
      const tf::Tensor& weight = *weights[i];
      bool fits = weight.NumElements() == *width;
      if (i < num_kernels_ && !is_vector_) {
        const bool second = low_rank_ && i % 2 == 1;
        const int64_t inner = low_rank_ ? *rank : *width;
        fits = weight.dims() == 2 && weight.dim_size(transposed_ ? 1 : 0) == (second ? inner : *width) &&
               weight.dim_size(transposed_ ? 0 : 1) == (second ? *width : inner);
      }
      if (!fits || *width == 0 || (low_rank_ && *rank == 0)) {
        return absl::InvalidArgumentError(absl::StrCat(i < num_kernels_ ? "kernel " : "bias ",
                                                       i < num_kernels_ ? i : i - num_kernels_, ": shape ",
                                                       weight.shape().DebugString(), ", expected one for width ",
                                                       *width, low_rank_ ? absl::StrCat(" and rank ", *rank) : ""));
      }
    }
    return absl::OkStatus();
  }

  bool is_vector_ = false;
  bool low_rank_ = false;
  bool transposed_ = false;
  int64_t num_kernels_ = 0;
  int64_t num_biases_ = 0;
};

REGISTER_KERNEL_BUILDER(Name("RecCrossNetwork").Device(tf::DEVICE_CPU), CrossNetworkOp);

}  // namespace
}  // namespace processor
