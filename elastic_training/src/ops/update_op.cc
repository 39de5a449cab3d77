// SPDX-License-Identifier: Apache-2.0
// ElasticTableUpdate: one step of the optimizer for the keys of a lookup.
#include <cmath>
#include <vector>

#include "src/ops/key_input.h"
#include "src/ops/table_list.h"
#include "src/ops/table_resource.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace elastic_training {
namespace {

using tensorflow::OpInputList;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

REGISTER_OP("ElasticTableUpdate")
    .Input("tables: N * resource")
    .Input("keys: Tkeys")
    .Input("places: N * int64")
    .Input("firsts: N * int32")
    .Input("row_splits: N * int64")
    .Input("weights: N * float")
    .Input("gradients: N * float")
    .Input("hyper: N * float")
    .Output("token: float")
    .Attr("N: int >= 1")
    .Attr("Tkeys: list({int64, string}) >= 1")
    .Attr("combiners: list(string)")
    .Attr("mask_zero: list(bool)")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc(R"doc(
Sums the gradients of equal keys, and applies one step of each table's optimizer to each distinct row.

A gradient that is not finite, or has an element of 2^60 or more, is refused and counted, or with stop_on_nan an error
before any row of that table changes. Rows that were evicted since the lookup are dropped and counted. A sweep of eviction
that is due goes one step further.

tables: handles of the tables.
keys: keys of each table, as ElasticTableLookup had them; so are row_splits, weights, combiners and mask_zero.
places: of ElasticTableLookup.
firsts: of ElasticTableLookup.
row_splits: of bags of keys, [bags + 1]; empty without a combiner.
weights: factor of each key [keys]; empty for 1.
gradients: of the outputs of ElasticTableLookup [keys, dim], or with a combiner [bags, dim].
hyper: what the optimizer takes with each update; the learning rate is first.
token: 0, for what has to depend on the update.
combiners: none, sum, mean or sqrtn, for each table.
mask_zero: for each table, whether the key 0 or "" is masked.
)doc");

class UpdateOp : public OpKernel {
 public:
  explicit UpdateOp(OpKernelConstruction* context) : OpKernel(context) { OP_REQUIRES_OK(context, list_.Read(context)); }

  void Compute(OpKernelContext* context) override {
    Call call;
    OP_REQUIRES_OK(context, context->input_list("keys", &call.keys));
    OP_REQUIRES_OK(context, context->input_list("places", &call.places));
    OP_REQUIRES_OK(context, context->input_list("firsts", &call.firsts));
    OP_REQUIRES_OK(context, context->input_list("row_splits", &call.row_splits));
    OP_REQUIRES_OK(context, context->input_list("weights", &call.weights));
    OP_REQUIRES_OK(context, context->input_list("gradients", &call.gradients));
    OP_REQUIRES_OK(context, context->input_list("hyper", &call.hyper));
    Tensor* token = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &token));
    token->scalar<float>()() = 0;
    int64_t total = 0;
    std::vector<TablePointer> tables(list_.count);
    std::vector<Job> jobs(list_.count);
    // Everything is checked before any table changes.
    for (int i = 0; i < list_.count; ++i) {
      OP_REQUIRES_OK(context, FindTable(context, i, &tables[i]));
      jobs[i].table = &tables[i]->table;
      jobs[i].eviction = &tables[i]->eviction;
      jobs[i].tiers = &tables[i]->tiers;
      OP_REQUIRES_OK(context, Prepare(call, i, &jobs[i]));
      total += call.keys[i].NumElements();
    }
    const Writing writing;
    OP_REQUIRES_OK(context, RunForTables(context, list_.count, total, [&](int i) { return Run(&jobs[i]); }));
  }

 private:
  struct Call {
    OpInputList keys, places, firsts, row_splits, weights, gradients, hyper;
  };
  struct Job {
    ElasticTable* table;
    Eviction* eviction;
    TierSweep* tiers;
    KeyInput keys;
    Bags bags;
    std::vector<int32_t> gradient_of;
    std::vector<float> scales;
    UpdateRequest request;
  };

  absl::Status Prepare(const Call& call, int i, Job* job) const {
    const ElasticTable& table = *job->table;
    if (absl::Status s = job->keys.Read(table, call.keys[i], list_.mask_zero[i]); !s.ok()) return s;
    const int64_t count = call.keys[i].NumElements(), dim = static_cast<int64_t>(table.layout().dim);
    const Combiner combiner = list_.combiners[i];
    absl::Status status = ReadBags(table, combiner, call.row_splits[i], call.weights[i], job->keys, &job->bags);
    if (!status.ok()) return status;
    const int64_t rows = combiner == Combiner::kNone ? count : static_cast<int64_t>(job->bags.count);
    for (const Tensor* handles : {&call.places[i], &call.firsts[i]}) {
      if (handles->NumElements() == count) continue;
      return TableError(table, handles->NumElements(), " places or firsts, expected ", count,
                        ", those of a lookup in training");
    }
    if (call.gradients[i].NumElements() != rows * dim) {
      return TableError(table, "gradients of shape ", call.gradients[i].shape().DebugString(), ", expected [", rows,
                        ",", dim, "]");
    }
    if (call.hyper[i].NumElements() != static_cast<int64_t>(table.optimizer().hyper_size())) {
      return TableError(table, call.hyper[i].NumElements(), " values of hyper, expected ",
                        table.optimizer().hyper_size(), ", the learning rate first");
    }
    const float learning_rate = call.hyper[i].flat<float>()(0);
    if (!(learning_rate >= 0) || std::isinf(learning_rate)) {
      return TableError(table, "a learning rate of ", learning_rate, ", expected a finite number of at least 0");
    }
    UpdateRequest& request = job->request;
    request.keys = job->keys.batch();
    request.places = call.places[i].flat<int64_t>().data();
    request.firsts = call.firsts[i].flat<int32_t>().data();
    request.gradients = call.gradients[i].flat<float>().data();
    request.hyper = call.hyper[i].flat<float>().data();
    for (int64_t k = 0; k < count; ++k) {
      const int32_t first = request.firsts[k];
      if (first >= 0 && first < count && request.firsts[first] == first) continue;
      return TableError(table, "firsts has ", first, " at ", k, ", expected those of the lookup");
    }
    return absl::OkStatus();
  }

  static absl::Status Run(Job* job) {
    UpdateResult result;
    absl::Status status = Guarded(*job->table, [&] {
      if (job->bags.combiner != Combiner::kNone) {
        job->gradient_of.resize(job->request.keys.count);
        job->scales.resize(job->request.keys.count);
        PoolGradient(job->bags, job->gradient_of.data(), job->scales.data());
        job->request.gradient_of = job->gradient_of.data();
        job->request.scales = job->scales.data();
      }
      result = job->table->Update(job->request);
      job->eviction->AfterUpdate(SecondsNow());
      job->tiers->AfterUpdate();
    });
    if (!status.ok() || result.not_finite < 0) return status;
    const KeyBatch& keys = job->request.keys;
    const std::string key = keys.texts == nullptr ? absl::StrCat(static_cast<int64_t>(keys.keys[result.not_finite]))
                                                  : absl::StrCat("'", keys.texts[result.not_finite], "'");
    return TableError(*job->table, "the gradient of key ", key, " is not finite, and the table stops on that");
  }

  TableList list_;
};

REGISTER_KERNEL_BUILDER(Name("ElasticTableUpdate").Device(tensorflow::DEVICE_CPU), UpdateOp);

}  // namespace
}  // namespace elastic_training
