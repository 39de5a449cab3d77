// SPDX-License-Identifier: Apache-2.0
// ElasticTableFollow and ElasticTableChangesBegin: what changed since the publisher's cut before. ElasticTableCutRead,
// ..Evicted and ..End read it.
#include "src/cut/model_changes.h"
#include "src/ops/cut_resource.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace elastic_training {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

REGISTER_OP("ElasticTableFollow")
    .Input("table: resource")
    .Input("follow: bool")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(R"doc(
Begins to note changes of a table for a publisher, or ends that.

table: handle of the table.
follow: scalar; true to begin: all rows count as changed. false to end: evicted keys take no memory any more.
)doc");

REGISTER_OP("ElasticTableChangesBegin")
    .Input("tables: N * resource")
    .Input("memory_bytes: int64")
    .Output("cut: resource")
    .Attr("N: int >= 1")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc(R"doc(
Begins a cut of what changed since the one before, or since ElasticTableFollow, as it is between the calls of two ops.

tables: handles of the tables; the changes of a table are read by one at a time.
memory_bytes: how much memory may hold rows that training changes before they were read. What would need more is left to
  the next cut, and ElasticTableCutEnd says so.
cut: handle for ElasticTableCutRead, whose values are weights without slots; ElasticTableCutEvicted; and
  ElasticTableCutEnd. If it ends before it was read, the changes are lost, and reading the next one is an error until
  ElasticTableFollow.
)doc");

class FollowOp final : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    TablePointer found;
    OP_REQUIRES_OK(context, FindTable(context, 0, &found));
    ElasticTable& table = found->table;
    OP_REQUIRES(context, context->input(1).NumElements() == 1,
                TableError(table, "follow has several elements, expected one"));
    const bool follow = context->input(1).flat<bool>()(0);
    OP_REQUIRES_OK(context, Guarded(table, [&] { follow ? table.Follow() : table.Unfollow(); }));
  }
};

class ChangesBeginOp final : public OpKernel {
 public:
  explicit ChangesBeginOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("N", &count_));
  }

  void Compute(OpKernelContext* context) override {
    const tensorflow::Tensor& input = context->input(count_);
    const int64_t bytes = input.NumElements() == 1 ? input.flat<int64_t>()(0) : 0;
    OP_REQUIRES(context, bytes > 0,
                absl::InvalidArgumentError(absl::StrCat("cut: memory_bytes is ", bytes, ", expected at least 1")));
    BeginCut(context, count_, [&](const std::vector<ElasticTable*>& tables) {
      return std::make_unique<ModelChanges>(tables, static_cast<size_t>(bytes));
    });
  }

 private:
  int count_ = 0;
};

REGISTER_KERNEL_BUILDER(Name("ElasticTableFollow").Device(tensorflow::DEVICE_CPU), FollowOp);
REGISTER_KERNEL_BUILDER(Name("ElasticTableChangesBegin").Device(tensorflow::DEVICE_CPU), ChangesBeginOp);

}  // namespace
}  // namespace elastic_training
