// SPDX-License-Identifier: Apache-2.0
// ElasticTableExport: all rows of a range of hashes, for files.
#include <algorithm>
#include <string>
#include <vector>

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

REGISTER_OP("ElasticTableExport")
    .Input("table: resource")
    .Input("part: int64")
    .Input("parts: int64")
    .Output("keys: Tkeys")
    .Output("weights: float")
    .Output("slots: float")
    .Output("meta: int64")
    .Attr("Tkeys: {int64, string}")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->MakeShape({c->UnknownDim()}));
      c->set_output(1, c->MakeShape({c->UnknownDim(), c->UnknownDim()}));
      c->set_output(2, c->MakeShape({c->UnknownDim(), c->UnknownDim()}));
      c->set_output(3, c->MakeShape({c->UnknownDim(), c->MakeDim(3)}));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Returns the rows whose hashes are in one of `parts` equal ranges; each row is in exactly one part. Segments of about 30,000
rows are read at a time, so rows of different segments may be of different steps if training goes on.

table: handle of the table.
part: scalar, 0 to parts - 1.
parts: scalar, at least 1.
keys: [n]
weights: [n, dim]; 0 unless the kind is 1.
slots: [n, slots]; 0 unless the kind is 1.
meta: [n, 3]: last touch [s since 2020-01-01 UTC], count, kind (1 row, 2 released row, 3 candidate).
)doc");

class ExportOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    TablePointer found;
    OP_REQUIRES_OK(context, FindTable(context, 0, &found));
    const ElasticTable& table = found->table;
    const int64_t part = context->input(1).flat<int64_t>()(0), parts = context->input(2).flat<int64_t>()(0);
    OP_REQUIRES(context, parts >= 1 && part >= 0 && part < parts,
                TableError(table, "part ", part, " of ", parts, ", expected 0 to parts - 1"));
    OP_REQUIRES(context,
                context->expected_output_dtype(0) ==
                    (table.config().string_keys ? tensorflow::DT_STRING : tensorflow::DT_INT64),
                TableError(table, "Tkeys is not the type of its keys"));
    Rows rows;
    OP_REQUIRES_OK(context, Guarded(table, [&] { Gather(table, part, parts, &rows); }));
    OP_REQUIRES_OK(context, Write(context, table, rows));
  }

 private:
  struct Rows {
    std::vector<int64_t> keys, meta;
    std::vector<std::string> texts;
    std::vector<float> weights, slots;
  };

  // First hash of a part; 0 after the last one.
  static uint64_t Begin(int64_t part, int64_t parts) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(part) << 64) / static_cast<uint64_t>(parts));
  }

  static void Gather(const ElasticTable& table, int64_t part, int64_t parts, Rows* rows) {
    const uint64_t begin = Begin(part, parts), last = Begin(part + 1, parts) - 1;
    const size_t dim = table.layout().dim, slots = table.layout().slots;
    const auto append = [](std::vector<float>* to, const float* from, size_t count) {
      if (from == nullptr) {
        to->resize(to->size() + count, 0.0f);
      } else {
        to->insert(to->end(), from, from + count);
      }
    };
    uint64_t cursor = begin;
    do {
      cursor = table.Visit(cursor, [&](const RowView& row) {
        const uint64_t hash = HashKey(row.key);
        if (hash < begin || hash > last) return;
        rows->keys.push_back(static_cast<int64_t>(row.key));
        if (table.config().string_keys) rows->texts.emplace_back(row.text);
        append(&rows->weights, row.weights, dim);
        append(&rows->slots, row.slots, slots);
        rows->meta.insert(rows->meta.end(), {row.touch, row.count, static_cast<int64_t>(row.kind)});
      });
    } while (cursor != 0 && cursor <= last);
  }

  static absl::Status Write(OpKernelContext* context, const ElasticTable& table, const Rows& rows) {
    const int64_t count = static_cast<int64_t>(rows.keys.size());
    const int64_t dim = static_cast<int64_t>(table.layout().dim), slots = static_cast<int64_t>(table.layout().slots);
    Tensor *keys = nullptr, *weights = nullptr, *slot_values = nullptr, *meta = nullptr;
    if (absl::Status s = context->allocate_output(0, TensorShape({count}), &keys); !s.ok()) return s;
    if (absl::Status s = context->allocate_output(1, TensorShape({count, dim}), &weights); !s.ok()) return s;
    if (absl::Status s = context->allocate_output(2, TensorShape({count, slots}), &slot_values); !s.ok()) return s;
    if (absl::Status s = context->allocate_output(3, TensorShape({count, 3}), &meta); !s.ok()) return s;
    if (table.config().string_keys) {
      std::copy(rows.texts.begin(), rows.texts.end(), keys->flat<tensorflow::tstring>().data());
    } else {
      std::copy(rows.keys.begin(), rows.keys.end(), keys->flat<int64_t>().data());
    }
    std::copy(rows.weights.begin(), rows.weights.end(), weights->flat<float>().data());
    std::copy(rows.slots.begin(), rows.slots.end(), slot_values->flat<float>().data());
    std::copy(rows.meta.begin(), rows.meta.end(), meta->flat<int64_t>().data());
    return absl::OkStatus();
  }
};

REGISTER_KERNEL_BUILDER(Name("ElasticTableExport").Device(tensorflow::DEVICE_CPU), ExportOp);

}  // namespace
}  // namespace elastic_training
