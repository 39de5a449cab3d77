// SPDX-License-Identifier: Apache-2.0
// ElasticTableResume, ..Adopt and ..Forget: rows that checkpoints leave on SSD.
#include <cstdint>
#include <string>
#include <vector>

#include "src/ops/key_input.h"
#include "src/ops/table_resource.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace elastic_training {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::shape_inference::NoOutputs;

REGISTER_OP("ElasticTableResume")
    .Input("table: resource")
    .Input("run: string")
    .Input("tokens: int64")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc(R"doc(
Lets a table that has no rows take those that checkpoints have left on SSD.

table: handle of the table.
run: scalar, what ElasticTableCutPromise returned.
tokens: [n] of the checkpoints' cuts; none ends what other calls have begun: files of no rows are removed.
)doc");

REGISTER_OP("ElasticTableAdopt")
    .Input("table: resource")
    .Input("keys: Tkeys")
    .Input("meta: int64")
    .Attr("Tkeys: {int64, string}")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc(R"doc(
Adds rows that a checkpoint has left on SSD, after ElasticTableResume. Each is read, so that a damaged one is found.

table: handle of the table.
keys: [n] as ElasticTableCutRead returned them.
meta: [n, 3]: the last column has places with the highest of 32 bits.
)doc");

REGISTER_OP("ElasticTableForget")
    .Input("table: resource")
    .Input("token: int64")
    .SetIsStateful()
    .SetShapeFn(NoOutputs)
    .Doc(R"doc(
Tells that a checkpoint is gone, which had left rows on SSD.

table: handle of the table.
token: scalar, of the checkpoint's cut.
)doc");

class ResumeOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    TablePointer found;
    OP_REQUIRES_OK(context, FindTable(context, 0, &found));
    RowLog* const log = found->table.log();
    OP_REQUIRES(context, log != nullptr,
                TableError(found->table, "rows of the checkpoint are on SSD, expected a table with tiers"));
    OP_REQUIRES(context, context->input(1).NumElements() == 1, TableError(found->table, "run has several elements"));
    const std::string run(context->input(1).flat<tensorflow::tstring>()(0));
    const auto tokens = context->input(2).flat<int64_t>();
    OP_REQUIRES_OK(context, Guarded(found->table, [&] {
                     for (int64_t i = 0; i < tokens.size(); ++i) log->Resume(run, static_cast<uint64_t>(tokens(i)));
                     if (tokens.size() == 0) log->EndResume();
                   }));
  }
};

class AdoptOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    TablePointer found;
    OP_REQUIRES_OK(context, FindTable(context, 0, &found));
    KeyInput keys;
    OP_REQUIRES_OK(context, keys.Read(found->table, context->input(1)));
    const KeyBatch batch = keys.batch();
    const int64_t count = static_cast<int64_t>(batch.count);
    OP_REQUIRES(context, context->input(2).shape() == tensorflow::TensorShape({count, 3}),
                TableError(found->table, "meta has shape ", context->input(2).shape().DebugString(), ", expected [",
                           count, ",3]"));
    const auto meta = context->input(2).matrix<int64_t>();
    std::vector<LogPlace> places(batch.count);
    for (int64_t i = 0; i < count; ++i) {
      places[i] = static_cast<LogPlace>(meta(i, 2)) & ~kOnSsdKind;
    }
    const Writing writing;
    OP_REQUIRES_OK(context, Guarded(found->table, [&] { found->table.Adopt(batch, places.data()); }));
  }
};

class ForgetOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    TablePointer found;
    OP_REQUIRES_OK(context, FindTable(context, 0, &found));
    OP_REQUIRES(context, context->input(1).NumElements() == 1, TableError(found->table, "token has several elements"));
    const auto token = static_cast<uint64_t>(context->input(1).flat<int64_t>()(0));
    RowLog* const log = found->table.log();
    if (log == nullptr) return;
    OP_REQUIRES_OK(context, Guarded(found->table, [&] { log->Forget(token); }));
  }
};

REGISTER_KERNEL_BUILDER(Name("ElasticTableResume").Device(tensorflow::DEVICE_CPU), ResumeOp);
REGISTER_KERNEL_BUILDER(Name("ElasticTableAdopt").Device(tensorflow::DEVICE_CPU), AdoptOp);
REGISTER_KERNEL_BUILDER(Name("ElasticTableForget").Device(tensorflow::DEVICE_CPU), ForgetOp);

}  // namespace
}  // namespace elastic_training
