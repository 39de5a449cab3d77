// SPDX-License-Identifier: Apache-2.0
// ElasticTableSweep: eviction by hand.
#include "src/ops/table_resource.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace elastic_training {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

REGISTER_OP("ElasticTableSweep")
    .Input("table: resource")
    .Output("evicted: int64")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc(R"doc(
Evicts what the table's strategy condemns, and what its limits want to leave, in one sweep; other ops may run meanwhile.

table: handle of the table.
evicted: number of rows and candidates that left.
)doc");

class SweepOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    TablePointer table;
    OP_REQUIRES_OK(context, FindTable(context, 0, &table));
    Tensor* evicted = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &evicted));
    OP_REQUIRES_OK(context, Guarded(table->table, [&] {
                     evicted->scalar<int64_t>()() = static_cast<int64_t>(table->eviction.Run(SecondsNow()));
                   }));
  }
};

REGISTER_KERNEL_BUILDER(Name("ElasticTableSweep").Device(tensorflow::DEVICE_CPU), SweepOp);

}  // namespace
}  // namespace elastic_training
