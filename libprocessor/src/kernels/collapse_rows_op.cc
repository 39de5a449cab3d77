// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "absl/strings/str_cat.h"
#include "src/kernels/repeat_row.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace processor {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::tstring;
using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

REGISTER_OP("RecCollapseRows")
    .Input("inputs: T")
    .Input("like: Tlike")
    .Output("outputs: T")
    .Attr("T: list(type) >= 1")
    .Attr("Tlike: type")
    .SetShapeFn([](InferenceContext* c) {
      const DimensionHandle rows = c->UnknownDim();
      for (int i = 0; i < c->num_outputs(); ++i) {
        ShapeHandle shape = c->input(i);
        if (c->RankKnown(shape)) {
          TF_RETURN_IF_ERROR(c->WithRankAtLeast(shape, 1, &shape));
          TF_RETURN_IF_ERROR(c->ReplaceDim(shape, 0, rows, &shape));
        }
        c->set_output(i, shape);
      }
      return absl::OkStatus();
    })
    .Doc(R"doc(
Passes one row of each input on where all rows of all inputs are equal, bit by bit; else all rows.

For the features of one user that come once, or once for each of many items. What comes once among others that come with
rows that differ is repeated.

inputs: [batch, ...] or [1, ...] each.
like: [batch, ...]; only its first dimension counts.
outputs: [1, ...] each, or [batch, ...] each.
)doc");

bool RowsAreEqual(const Tensor& tensor) {
  const int64_t rows = tensor.dim_size(0);
  if (rows < 2) return true;
  const int64_t row_elements = tensor.NumElements() / rows;
  if (tensor.dtype() == tensorflow::DT_STRING) {
    const tstring* values = tensor.flat<tstring>().data();
    for (int64_t i = row_elements; i < rows * row_elements; ++i) {
      const tstring &value = values[i], &first = values[i % row_elements];
      if (value.size() != first.size() || std::memcmp(value.data(), first.data(), value.size()) != 0) return false;
    }
    return true;
  }
  // If every row equals the one before it, all are equal.
  const auto bytes = tensor.tensor_data();
  if (bytes.empty()) return true;
  const size_t row_bytes = bytes.size() / static_cast<size_t>(rows);
  return std::memcmp(bytes.data(), bytes.data() + row_bytes, bytes.size() - row_bytes) == 0;
}

class CollapseRowsOp : public tensorflow::OpKernel {
 public:
  explicit CollapseRowsOp(tensorflow::OpKernelConstruction* context) : OpKernel(context) {
    for (int i = 0; i < num_outputs(); ++i) {
      OP_REQUIRES_OK(context, CheckCopyable(name(), absl::StrCat("input ", i), input_type(i)));
    }
  }

  void Compute(OpKernelContext* context) override {
    const Tensor& like = context->input(num_outputs());
    OP_REQUIRES(context, like.dims() >= 1,
                absl::InvalidArgumentError(absl::StrCat("node '", name(), "': like: a scalar, expected [rows, ...]")));
    const int64_t rows = like.dim_size(0);
    bool one_row = true, equal = true;
    for (int i = 0; i < num_outputs(); ++i) {
      const Tensor& tensor = context->input(i);
      OP_REQUIRES(context, tensor.dims() >= 1,
                  absl::InvalidArgumentError(
                      absl::StrCat("node '", name(), "': input ", i, ": a scalar, expected [rows, ...]")));
      const int64_t here = tensor.dim_size(0);
      OP_REQUIRES(context, here == rows || here == 1,
                  absl::InvalidArgumentError(absl::StrCat("node '", name(), "': input ", i, ": ", here,
                                                          " rows, expected 1 or ", rows, " as like has")));
      one_row &= here == 1;
    }
    // No row could stand for none.
    for (int i = 0; i < num_outputs() && equal && !one_row; ++i) equal = rows > 0 && RowsAreEqual(context->input(i));
    for (int i = 0; i < num_outputs(); ++i) {
      const Tensor& tensor = context->input(i);
      if (!equal && tensor.dim_size(0) == 1 && rows != 1) {
        OP_REQUIRES_OK(context, RepeatRow(context, i, tensor, rows));
      } else {
        // The first row shares the memory of all.
        context->set_output(i, equal && tensor.dim_size(0) > 1 ? tensor.Slice(0, 1) : tensor);
      }
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("RecCollapseRows").Device(tensorflow::DEVICE_CPU), CollapseRowsOp);

}  // namespace
}  // namespace processor
