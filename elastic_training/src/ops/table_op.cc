// SPDX-License-Identifier: Apache-2.0
// ElasticTable, the op that makes a table or finds the one of its name, and the ops that read its counters.
#include <memory>
#include <string>

#include "src/ops/table_resource.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace elastic_training {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::shape_inference::ScalarShape;

REGISTER_OP("ElasticTable")
    .Output("table: resource")
    .Attr("config: string")
    .Attr("container: string = ''")
    .Attr("shared_name: string = ''")
    .SetIsStateful()
    .SetShapeFn(ScalarShape)
    .Doc(R"doc(
A table of embedding rows that grows by itself.

config: JSON of the table (elastic_training/config.py).
container: container of the resource.
shared_name: name of the resource; by default that of the node. Tables of equal name are one, and must have equal JSON.
table: handle of the table.
)doc");

REGISTER_OP("ElasticTableStep")
    .Input("table: resource")
    .Output("step: int64")
    .SetIsStateful()
    .SetShapeFn(ScalarShape)
    .Doc(R"doc(
Returns the number of updates of a table so far, for schedules of the learning rate.

table: handle of the table.
step: scalar.
)doc");

REGISTER_OP("ElasticTableStats")
    .Input("table: resource")
    .Output("stats: string")
    .SetIsStateful()
    .SetShapeFn(ScalarShape)
    .Doc(R"doc(
Returns the counters of a table.

table: handle of the table.
stats: scalar, a JSON object.
)doc");

class ElasticTableOp : public OpKernel {
 public:
  explicit ElasticTableOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("config", &json_));
    OP_REQUIRES_OK(context, context->GetAttr("container", &container_));
    OP_REQUIRES_OK(context, context->GetAttr("shared_name", &shared_name_));
  }

  void Compute(OpKernelContext* context) override {
    const std::string& resource_name = shared_name_.empty() ? name() : shared_name_;
    const tensorflow::ResourceHandle handle =
        tensorflow::MakeResourceHandle<TableResource>(context, container_, resource_name);
    TablePointer table;
    OP_REQUIRES_OK(context, tensorflow::LookupOrCreateResource<TableResource>(
                                context, handle, &table, [this](TableResource** created) { return Make(created); }));
    OP_REQUIRES(context, table->json == json_,
                TableError(table->table, "a table of the name '", resource_name, "' exists with ", table->json,
                           ", expected ", json_));
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &output));
    output->scalar<tensorflow::ResourceHandle>()() = handle;
  }

 private:
  absl::Status Make(TableResource** created) const {
    try {
      *created = new TableResource(TableConfig::Parse(json_), json_);
      return absl::OkStatus();
    } catch (const std::bad_alloc&) {
      return absl::ResourceExhaustedError("no memory for a new table");
    } catch (const std::exception& error) {
      return absl::InvalidArgumentError(error.what());
    }
  }

  std::string json_, container_, shared_name_;
};

class ElasticTableStepOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    TablePointer table;
    OP_REQUIRES_OK(context, FindTable(context, 0, &table));
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &output));
    output->scalar<int64_t>()() = static_cast<int64_t>(table->table.step());
  }
};

class ElasticTableStatsOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    TablePointer table;
    OP_REQUIRES_OK(context, FindTable(context, 0, &table));
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &output));
    output->scalar<tensorflow::tstring>()() = table->Stats();
  }
};

REGISTER_KERNEL_BUILDER(Name("ElasticTable").Device(tensorflow::DEVICE_CPU), ElasticTableOp);
REGISTER_KERNEL_BUILDER(Name("ElasticTableStep").Device(tensorflow::DEVICE_CPU), ElasticTableStepOp);
REGISTER_KERNEL_BUILDER(Name("ElasticTableStats").Device(tensorflow::DEVICE_CPU), ElasticTableStatsOp);

}  // namespace
}  // namespace elastic_training
