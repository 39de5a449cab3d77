// SPDX-License-Identifier: Apache-2.0
// ElasticTableLookup: the rows of the keys of several tables, pooled or not.
#include <memory>
#include <vector>

#include "src/ops/key_input.h"
#include "src/ops/table_list.h"
#include "src/ops/table_resource.h"
#include "tensorflow/core/framework/op.h"

namespace elastic_training {
namespace {

using tensorflow::OpInputList;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::OpOutputList;
using tensorflow::Tensor;
using tensorflow::TensorShape;

REGISTER_OP("ElasticTableLookup")
    .Input("tables: N * resource")
    .Input("keys: Tkeys")
    .Input("row_splits: N * int64")
    .Input("weights: N * float")
    .Output("outputs: N * float")
    .Output("places: N * int64")
    .Output("firsts: N * int32")
    .Attr("N: int >= 1")
    .Attr("Tkeys: list({int64, string}) >= 1")
    .Attr("combiners: list(string)")
    .Attr("mask_zero: list(bool)")
    .Attr("training: bool")
    .Attr("dims: list(int) = []")
    .SetIsStateful()
    .SetShapeFn(InferLookupShapes)
    .Doc(R"doc(
Looks keys up in tables. In training it counts them, and gives rows to new keys that the tables' filters admit; otherwise
it writes nothing. A table that several features share should be given once, with all their keys.

tables: handles of the tables.
keys: keys of each table, of any shape; what follows counts them in row-major order.
row_splits: of bags of keys, [bags + 1]; empty without a combiner.
weights: factor of each key [keys]; empty for 1.
outputs: rows [keys, dim], or with a combiner [bags, dim].
places: in training, handles of the rows for ElasticTableUpdate [keys], -1 where there is nothing to update; else empty.
firsts: in training, the first position with an equal key [keys]; else empty.
combiners: none, sum, mean or sqrtn, for each table.
mask_zero: for each table, whether the key 0 or "" reads zeros and belongs to no bag.
training: whether this is a step of training.
dims: elements of a row of each table, for the shapes of outputs; empty if unknown.
)doc");

class LookupOp : public OpKernel {
 public:
  explicit LookupOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, list_.Read(context));
    OP_REQUIRES_OK(context, context->GetAttr("training", &training_));
    OP_REQUIRES_OK(context, context->GetAttr("dims", &dims_));
  }

  void Compute(OpKernelContext* context) override {
    OpInputList keys;
    Call call;
    OP_REQUIRES_OK(context, context->input_list("keys", &keys));
    OP_REQUIRES_OK(context, context->input_list("row_splits", &call.row_splits));
    OP_REQUIRES_OK(context, context->input_list("weights", &call.weights));
    OP_REQUIRES_OK(context, context->output_list("outputs", &call.outputs));
    OP_REQUIRES_OK(context, context->output_list("places", &call.places));
    OP_REQUIRES_OK(context, context->output_list("firsts", &call.firsts));
    int64_t total = 0;
    const Writing writing(training_);
    std::vector<TablePointer> tables(list_.count);
    call.jobs.resize(list_.count);
    for (int i = 0; i < list_.count; ++i) {
      OP_REQUIRES_OK(context, FindTable(context, i, &tables[i]));
      call.jobs[i].table = &tables[i]->table;
      OP_REQUIRES_OK(context, Prepare(keys[i], i, &call));
      total += keys[i].NumElements();
    }
    OP_REQUIRES_OK(context, RunForTables(context, list_.count, total, [&](int i) { return Run(&call.jobs[i]); }));
  }

 private:
  struct Job {
    ElasticTable* table;
    KeyInput keys;
    Bags bags;
    LookupRequest request;
    float* output;
    Tensor unpooled;
  };
  struct Call {
    OpInputList row_splits, weights;
    OpOutputList outputs, places, firsts;
    std::vector<Job> jobs;
  };

  // Checks the inputs of a table and allocates its outputs.
  absl::Status Prepare(const Tensor& keys, int i, Call* call) {
    Job& job = call->jobs[i];
    const ElasticTable& table = *job.table;
    const int64_t dim = static_cast<int64_t>(table.layout().dim), count = keys.NumElements();
    if (i < dims_.size() && dims_[i] != dim) {
      return TableError(table, "rows have ", dim, " elements, expected ", dims_[i]);
    }
    if (absl::Status s = job.keys.Read(table, keys, list_.mask_zero[i]); !s.ok()) return s;
    const Combiner combiner = list_.combiners[i];
    absl::Status status = ReadBags(table, combiner, call->row_splits[i], call->weights[i], job.keys, &job.bags);
    if (!status.ok()) return status;
    const bool pooled = combiner != Combiner::kNone;
    Tensor* output = nullptr;
    const int64_t rows = pooled ? static_cast<int64_t>(job.bags.count) : count;
    status = call->outputs.allocate(i, TensorShape({rows, dim}), &output);
    if (!status.ok()) return status;
    job.output = output->flat<float>().data();
    job.request.keys = job.keys.batch();
    job.request.training = training_;
    job.request.masked = job.keys.masked();
    job.request.now = training_ ? SecondsNow() : 0;
    job.request.rows = job.output;
    if (pooled) {
      job.unpooled = Tensor(tensorflow::DT_FLOAT, TensorShape({count, dim}));
      job.request.rows = job.unpooled.flat<float>().data();
    }
    Tensor *places = nullptr, *firsts = nullptr;
    const TensorShape handles({training_ ? count : 0});
    if (status = call->places.allocate(i, handles, &places); !status.ok()) return status;
    if (status = call->firsts.allocate(i, handles, &firsts); !status.ok()) return status;
    job.request.places = places->flat<int64_t>().data();
    job.request.firsts = firsts->flat<int32_t>().data();
    return absl::OkStatus();
  }

  static absl::Status Run(Job* job) {
    return Guarded(*job->table, [job] {
      job->table->Lookup(job->request);
      if (job->bags.combiner != Combiner::kNone) {
        Pool(job->bags, job->request.rows, job->table->layout().dim, job->output);
      }
    });
  }

  TableList list_;
  bool training_ = false;
  std::vector<int64_t> dims_;
};

REGISTER_KERNEL_BUILDER(Name("ElasticTableLookup").Device(tensorflow::DEVICE_CPU), LookupOp);

}  // namespace
}  // namespace elastic_training
