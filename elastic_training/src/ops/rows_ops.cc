// SPDX-License-Identifier: Apache-2.0
// ElasticTableInsert, ElasticTableRead and ElasticTableEvict: contents of rows, past training; and
// ElasticTableEstimateAdmission.
#include <algorithm>
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
using tensorflow::TensorShape;
using tensorflow::shape_inference::InferenceContext;

// touch, count, kind
constexpr int64_t kMetaColumns = 3;

REGISTER_OP("ElasticTableInsert")
    .Input("table: resource")
    .Input("keys: Tkeys")
    .Input("weights: float")
    .Input("slots: float")
    .Input("meta: int64")
    .Attr("Tkeys: {int64, string}")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(R"doc(
Writes rows, past admission. An input that is empty leaves what a row has; new rows get what training would give them.

table: handle of the table.
keys: [n]; the last of equal keys counts.
weights: [n, dim] or empty.
slots: [n, slots] or empty.
meta: [n, 3] or empty: last touch [s since 2020-01-01 UTC], count, kind (1 row, 2 released row, 3 candidate).
)doc");

REGISTER_OP("ElasticTableRead")
    .Input("table: resource")
    .Input("keys: Tkeys")
    .Output("weights: float")
    .Output("slots: float")
    .Output("meta: int64")
    .Attr("Tkeys: {int64, string}")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      const auto keys = c->NumElements(c->input(1));
      c->set_output(0, c->MakeShape({keys, c->UnknownDim()}));
      c->set_output(1, c->MakeShape({keys, c->UnknownDim()}));
      c->set_output(2, c->MakeShape({keys, c->MakeDim(kMetaColumns)}));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Reads rows without counting them.

table: handle of the table.
keys: of any shape.
weights: [keys, dim]; the default row where there is none.
slots: [keys, slots]; 0 where there are none.
meta: [keys, 3]: last touch [s since 2020-01-01 UTC], count, kind (0 absent, 1 row, 2 released row, 3 candidate).
)doc");

REGISTER_OP("ElasticTableEvict")
    .Input("table: resource")
    .Input("keys: Tkeys")
    .Output("evicted: int64")
    .Attr("Tkeys: {int64, string}")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc(R"doc(
Removes the rows of keys.

table: handle of the table.
keys: of any shape.
evicted: number of rows that there were.
)doc");

REGISTER_OP("ElasticTableEstimateAdmission")
    .Input("table: resource")
    .Input("keys: Tkeys")
    .Output("counted: int64")
    .Output("admits_at: int64")
    .Output("draw: double")
    .Attr("Tkeys: {int64, string}")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      for (int i = 0; i < 3; ++i) c->set_output(i, c->MakeShape({c->NumElements(c->input(1))}));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Returns what the filter of admission knows of keys without a row, and counts nothing.

table: handle of the table.
keys: of any shape.
counted: [keys], how often training has met each; a sketch may have counted another key with it, or have forgotten it.
admits_at: [keys], the count at which it would be admitted now.
draw: [keys], probability that the next occurrence is admitted before that, of a filter that draws; else 0.
)doc");

REGISTER_OP("ElasticTablePrefetch")
    .Input("table: resource")
    .Input("keys: Tkeys")
    .Attr("Tkeys: {int64, string}")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(R"doc(
Asks the device for the rows on SSD of keys that a later step looks up, and does not wait for them.

table: handle of the table.
keys: of any shape.
)doc");

class RowsOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    TablePointer table;
    OP_REQUIRES_OK(context, FindTable(context, 0, &table));
    KeyInput keys;
    OP_REQUIRES_OK(context, keys.Read(table->table, context->input(1)));
    OP_REQUIRES_OK(context, Run(context, table.get(), keys.batch()));
  }

 protected:
  virtual absl::Status Run(OpKernelContext* context, TableResource* found, const KeyBatch& keys) = 0;
};

class InsertOp final : public RowsOp {
 public:
  using RowsOp::RowsOp;

 protected:
  absl::Status Run(OpKernelContext* context, TableResource* found, const KeyBatch& keys) override {
    ElasticTable* const table = &found->table;
    const int64_t count = static_cast<int64_t>(keys.count);
    const int64_t columns[] = {static_cast<int64_t>(table->layout().dim), static_cast<int64_t>(table->layout().slots),
                               kMetaColumns};
    const char* const names[] = {"weights", "slots", "meta"};
    for (int i = 0; i < 3; ++i) {
      const Tensor& input = context->input(2 + i);
      if (input.NumElements() == 0 || input.shape() == TensorShape({count, columns[i]})) continue;
      return TableError(*table, names[i], " have shape ", input.shape().DebugString(), ", expected [", count, ",",
                        columns[i], "]");
    }
    RowContents contents;
    // Insert only reads what it is given.
    const auto floats = [&](int i) {
      const Tensor& input = context->input(i);
      return input.NumElements() == 0 ? nullptr : const_cast<float*>(input.flat<float>().data());
    };
    contents.weights = floats(2);
    contents.slots = floats(3);
    std::vector<int64_t> meta[kMetaColumns];
    if (context->input(4).NumElements() != 0) {
      const auto rows = context->input(4).matrix<int64_t>();
      for (int64_t column = 0; column < kMetaColumns; ++column) {
        const int64_t low = column == 2 ? 1 : 0, high = column == 2 ? 3 : UINT32_MAX;
        for (int64_t i = 0; i < count; ++i) {
          const int64_t value = rows(i, column);
          if (value < low || value > high) {
            return TableError(*table, "meta has ", value, " at [", i, ",", column, "], expected ", low, " to ", high);
          }
          meta[column].push_back(value);
        }
      }
      contents.touches = meta[0].data();
      contents.counts = meta[1].data();
      contents.kinds = meta[2].data();
    }
    const Writing writing;
    return Guarded(*table, [&] {
      table->Insert(keys, contents);
      found->tiers.AfterUpdate();
    });
  }
};

class ReadOp final : public RowsOp {
 public:
  using RowsOp::RowsOp;

 protected:
  absl::Status Run(OpKernelContext* context, TableResource* found, const KeyBatch& keys) override {
    ElasticTable* const table = &found->table;
    const int64_t count = static_cast<int64_t>(keys.count);
    Tensor *weights = nullptr, *slots = nullptr, *meta = nullptr;
    const TensorShape weights_shape({count, static_cast<int64_t>(table->layout().dim)});
    const TensorShape slots_shape({count, static_cast<int64_t>(table->layout().slots)});
    if (absl::Status s = context->allocate_output(0, weights_shape, &weights); !s.ok()) return s;
    if (absl::Status s = context->allocate_output(1, slots_shape, &slots); !s.ok()) return s;
    if (absl::Status s = context->allocate_output(2, TensorShape({count, kMetaColumns}), &meta); !s.ok()) return s;
    std::vector<int64_t> columns[kMetaColumns];
    for (std::vector<int64_t>& column : columns) column.resize(keys.count);
    RowContents contents;
    contents.weights = weights->flat<float>().data();
    contents.slots = slots->flat<float>().data();
    contents.touches = columns[0].data();
    contents.counts = columns[1].data();
    contents.kinds = columns[2].data();
    const absl::Status status = Guarded(*table, [&] { table->Read(keys, contents); });
    auto rows = meta->matrix<int64_t>();
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t column = 0; column < kMetaColumns; ++column) rows(i, column) = columns[column][i];
    }
    return status;
  }
};

class EvictOp final : public RowsOp {
 public:
  using RowsOp::RowsOp;

 protected:
  absl::Status Run(OpKernelContext* context, TableResource* found, const KeyBatch& keys) override {
    ElasticTable* const table = &found->table;
    Tensor* evicted = nullptr;
    if (absl::Status s = context->allocate_output(0, TensorShape({}), &evicted); !s.ok()) return s;
    const Writing writing;
    return Guarded(*table, [&] { evicted->scalar<int64_t>()() = static_cast<int64_t>(table->Evict(keys)); });
  }
};

class EstimateAdmissionOp final : public RowsOp {
 public:
  using RowsOp::RowsOp;

 protected:
  absl::Status Run(OpKernelContext* context, TableResource* found, const KeyBatch& keys) override {
    ElasticTable* const table = &found->table;
    std::vector<AdmissionEstimate> estimates(keys.count);
    const absl::Status status =
        Guarded(*table, [&] { table->EstimateAdmission(keys, SecondsNow(), estimates.data()); });
    if (!status.ok()) return status;
    Tensor* outputs[3];
    for (int i = 0; i < 3; ++i) {
      const TensorShape shape({static_cast<int64_t>(keys.count)});
      if (absl::Status s = context->allocate_output(i, shape, &outputs[i]); !s.ok()) return s;
    }
    for (size_t i = 0; i < keys.count; ++i) {
      outputs[0]->flat<int64_t>()(i) = estimates[i].counted;
      outputs[1]->flat<int64_t>()(i) = estimates[i].admits_at;
      outputs[2]->flat<double>()(i) = estimates[i].draw;
    }
    return absl::OkStatus();
  }
};

class PrefetchOp final : public RowsOp {
 public:
  using RowsOp::RowsOp;

 protected:
  absl::Status Run(OpKernelContext*, TableResource* found, const KeyBatch& keys) override {
    return Guarded(found->table, [&] { found->table.Prefetch(keys); });
  }
};

REGISTER_KERNEL_BUILDER(Name("ElasticTablePrefetch").Device(tensorflow::DEVICE_CPU), PrefetchOp);
REGISTER_KERNEL_BUILDER(Name("ElasticTableInsert").Device(tensorflow::DEVICE_CPU), InsertOp);
REGISTER_KERNEL_BUILDER(Name("ElasticTableRead").Device(tensorflow::DEVICE_CPU), ReadOp);
REGISTER_KERNEL_BUILDER(Name("ElasticTableEvict").Device(tensorflow::DEVICE_CPU), EvictOp);
REGISTER_KERNEL_BUILDER(Name("ElasticTableEstimateAdmission").Device(tensorflow::DEVICE_CPU), EstimateAdmissionOp);

}  // namespace
}  // namespace elastic_training
