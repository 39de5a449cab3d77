// SPDX-License-Identifier: Apache-2.0
// ElasticTableClear and ElasticTableSetState: what a table needs besides ElasticTableInsert to take a checkpoint over.
#include <string>

#include "src/ops/table_resource.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace elastic_training {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelContext;

REGISTER_OP("ElasticTableClear")
    .Input("table: resource")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(R"doc(
Removes all rows and candidates.

table: handle of the table.
)doc");

REGISTER_OP("ElasticTableSetState")
    .Input("table: resource")
    .Input("step: int64")
    .Input("occurrences: int64")
    .Input("filter: string")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(R"doc(
Sets what a table counts besides its rows. If the filter does not take its state, nothing changes.

table: handle of the table.
step: scalar, the number of updates; -1 leaves it, and `occurrences`.
occurrences: scalar, the number of keys that training has looked up.
filter: [0] to leave the filter as it is, or [1], its state of ElasticTableCutFilter.
)doc");

class ClearOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    TablePointer table;
    OP_REQUIRES_OK(context, FindTable(context, 0, &table));
    OP_REQUIRES_OK(context, Guarded(table->table, [&] {
                     uint64_t cursor = 0;
                     do {
                       const Writing writing;
                       cursor = table->table.Sweep(cursor, [](const RowView&) { return RowFate::kEvict; });
                     } while (cursor != 0);
                   }));
  }
};

class SetStateOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    TablePointer found;
    OP_REQUIRES_OK(context, FindTable(context, 0, &found));
    ElasticTable& table = found->table;
    for (int i = 1; i < 3; ++i) {
      OP_REQUIRES(context, context->input(i).NumElements() == 1,
                  TableError(table, "step or occurrences has several elements, expected one"));
    }
    const int64_t step = context->input(1).flat<int64_t>()(0), occurrences = context->input(2).flat<int64_t>()(0);
    OP_REQUIRES(context, step >= -1 && (step == -1 || occurrences >= 0),
                TableError(table, "step ", step, " and occurrences ", occurrences, ", expected none below 0"));
    const auto filter = context->input(3).flat<tensorflow::tstring>();
    // A filter takes its state over while nobody counts.
    Writers::OfProcess().Stop();
    const absl::Status status = Guarded(table, [&] {
      if (filter.size() != 0) table.admission().Restore(filter(0));
      if (step < 0) return;
      table.set_step(static_cast<uint64_t>(step));
      table.set_occurrences(static_cast<uint64_t>(occurrences));
    });
    Writers::OfProcess().Resume();
    OP_REQUIRES_OK(context, status);
  }
};

REGISTER_KERNEL_BUILDER(Name("ElasticTableClear").Device(tensorflow::DEVICE_CPU), ClearOp);
REGISTER_KERNEL_BUILDER(Name("ElasticTableSetState").Device(tensorflow::DEVICE_CPU), SetStateOp);

}  // namespace
}  // namespace elastic_training
