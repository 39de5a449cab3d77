// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <vector>

#include "src/kernels/interruption.h"
#include "src/kernels/recurrent_layer.h"
#include "src/kernels/row_shards.h"
#include "src/kernels/weighted_kernel.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace processor {
namespace {

namespace tf = tensorflow;

REGISTER_OP("RecRecurrentLayer")
    .Input("x: float")
    .Input("mask: num_masks * Tmask")
    .Input("kernel: float")
    .Input("recurrent: float")
    .Input("biases: num_biases * float")
    .Input("view: num_views * variant")
    .Output("states: float")
    .Attr("cell: {'gru', 'gru_reset_before', 'lstm'}")
    .Attr("num_masks: int >= 0 = 0")
    .Attr("Tmask: {bool, float, int32, int64} = DT_BOOL")
    .Attr("num_biases: int >= 0 = 0")
    .Attr("sequences: bool = false")
    .Attr("backwards: bool = false")
    .Attr("num_views: int >= 0 = 0")
    .Attr("formulas: list(string) = []")
    .SetShapeFn([](tf::shape_inference::InferenceContext* context) -> absl::Status {
      tf::shape_inference::ShapeHandle x, recurrent;
      int masks;
      bool sequences;
      TF_RETURN_IF_ERROR(context->GetAttr("num_masks", &masks));
      TF_RETURN_IF_ERROR(context->GetAttr("sequences", &sequences));
      TF_RETURN_IF_ERROR(context->WithRank(context->input(0), 3, &x));
      TF_RETURN_IF_ERROR(context->WithRank(context->input(2 + masks), 2, &recurrent));
      const auto rows = context->Dim(x, 0), units = context->Dim(recurrent, 0);
      context->set_output(
          0, sequences ? context->MakeShape({rows, context->Dim(x, 1), units}) : context->MakeShape({rows, units}));
      return absl::OkStatus();
    })
    .Doc(R"doc(
A recurrent layer over padded sequences, whose first state is zero.

x: [rows, length, inputs].
mask: at most one: bool or float with as many elements as [rows, length], or integers: the length of each sequence. A
  position that does not count leaves the state as it is.
kernel: [inputs, gates * units]; the gates are z, r and h of a GRU, and i, f, c and o of an LSTM.
recurrent: [units, gates * units].
biases: none; one, [gates * units], added to products with x; or of `gru` two, the second added to products with the state.
states: the last state [rows, units]; with `sequences` that after each step [rows, length, units].
backwards: the first step takes the last position.
view: at most one, of RecPinView: the op reads the weights at its epoch. The inputs hold those of epoch 0.
formulas: for each weight the name of the formula that computes it at later epochs, or '' if it never changes; none
  without a view.
)doc");

class RecurrentLayerOp : public WeightedKernel<RecurrentLayer> {
 public:
  explicit RecurrentLayerOp(tf::OpKernelConstruction* context) : WeightedKernel(context) {
    std::string cell;
    OP_REQUIRES_OK(context, context->GetAttr("cell", &cell));
    OP_REQUIRES_OK(context, context->GetAttr("num_masks", &num_masks_));
    OP_REQUIRES_OK(context, context->GetAttr("num_biases", &num_biases_));
    OP_REQUIRES_OK(context, context->GetAttr("sequences", &rule_.sequences));
    OP_REQUIRES_OK(context, context->GetAttr("backwards", &rule_.backwards));
    cell_ = cell == "gru"                ? RecurrentCell::kGru
            : cell == "gru_reset_before" ? RecurrentCell::kGruResetBefore
                                         : RecurrentCell::kLstm;
    OP_REQUIRES(context, num_masks_ <= 1,
                absl::InvalidArgumentError(absl::StrCat("mask: ", num_masks_, " of them, expected at most one")));
    const int most = cell_ == RecurrentCell::kGru ? 2 : 1;
    OP_REQUIRES(context, num_biases_ <= most,
                absl::InvalidArgumentError(
                    absl::StrCat("biases: ", num_biases_, " of them, expected at most ", most, " for '", cell, "'")));
    OP_REQUIRES_OK(context, SetWeights(context, 1 + num_masks_, 2 + num_biases_));
  }

  ~RecurrentLayerOp() override { ForgetViews(); }

  void Compute(tf::OpKernelContext* context) override {
    const RecurrentLayer* made = nullptr;
    OP_REQUIRES_OK(context, Get(context, &made));
    const RecurrentLayer& layer = *made;
    const tf::Tensor& x = context->input(0);
    OP_REQUIRES(context, x.dims() == 3 && x.dim_size(2) == layer.inputs(),
                absl::InvalidArgumentError(absl::StrCat("x: shape ", x.shape().DebugString(),
                                                        ", expected [rows, length, ", layer.inputs(), "]")));
    const int64_t rows = x.dim_size(0), length = x.dim_size(1);
    SequenceMask mask;
    if (num_masks_ > 0) OP_REQUIRES_OK(context, SequenceMask::Read(context->input(1), rows, length, &mask));
    tf::TensorShape shape({rows, layer.units()});
    if (rule_.sequences) shape.InsertDim(1, length);
    tf::Tensor* result = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, shape, &result));
    float* states = result->flat<float>().data();
    // A sequence may be longer than the block after which rows are asked.
    const Interruption interruption(context);
    ForRows(context, rows, length * layer.position_cost(), [&](int64_t begin, int64_t end) {
      layer.Rows(x.flat<float>().data(), num_masks_ > 0 ? &mask : nullptr, begin, end, length, rule_,
                 ThreadScratch(layer.scratch(length)), states, ThisCpu().isa, [&] { return interruption.requested(); });
    });
    OP_REQUIRES_OK(context, interruption.status());
  }

 private:
  absl::Status Make(const Weights& weights, std::unique_ptr<RecurrentLayer>* layer) const override {
    const tf::Tensor &kernel = *weights[0], &recurrent = *weights[1];
    const int64_t gates = RecurrentGates(cell_);
    const int64_t units = recurrent.dims() == 2 ? recurrent.dim_size(0) : 0, n = gates * units;
    if (units == 0 || recurrent.dim_size(1) != n || kernel.dims() != 2 || kernel.dim_size(0) == 0 ||
        kernel.dim_size(1) != n) {
      return absl::InvalidArgumentError(absl::StrCat("kernel, recurrent: shapes ", kernel.shape().DebugString(), ", ",
                                                     recurrent.shape().DebugString(), ", expected [inputs, ", gates,
                                                     " * units] and [units, ", gates, " * units]"));
    }
    RecurrentWeights given;
    given.cell = cell_;
    given.inputs = kernel.dim_size(0);
    given.units = units;
    given.kernel = kernel.flat<float>().data();
    given.recurrent = recurrent.flat<float>().data();
    const float** biases[] = {&given.bias, &given.recurrent_bias};
    for (int i = 0; i < num_biases_; ++i) {
      const tf::Tensor& bias = *weights[2 + i];
      if (bias.NumElements() != n) {
        return absl::InvalidArgumentError(
            absl::StrCat("bias ", i, ": shape ", bias.shape().DebugString(), ", expected [", n, "]"));
      }
      *biases[i] = bias.flat<float>().data();
    }
    *layer = std::make_unique<RecurrentLayer>(given);
    return absl::OkStatus();
  }

  RecurrentCell cell_ = RecurrentCell::kGru;
  RecurrentRule rule_;
  int num_masks_ = 0;
  int num_biases_ = 0;
};

REGISTER_KERNEL_BUILDER(Name("RecRecurrentLayer").Device(tf::DEVICE_CPU), RecurrentLayerOp);

}  // namespace
}  // namespace processor
