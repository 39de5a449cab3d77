// SPDX-License-Identifier: Apache-2.0
// ElasticTableFollow and ElasticTableCollect: what changed since the last call, for publishers of deltas.
#include <algorithm>
#include <string>
#include <unordered_set>
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
using tensorflow::tstring;
using tensorflow::shape_inference::InferenceContext;

REGISTER_OP("ElasticTableFollow")
    .Input("table: resource")
    .Input("consumer: int64")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(R"doc(
Begins to note changes of a table for a consumer. All rows count as changed.

table: handle of the table.
consumer: scalar, 0 to 2.
)doc");

REGISTER_OP("ElasticTableCollect")
    .Input("table: resource")
    .Input("consumer: int64")
    .Output("keys: Tkeys")
    .Output("weights: float")
    .Output("gone: Tkeys")
    .Attr("Tkeys: {int64, string}")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->MakeShape({c->UnknownDim()}));
      c->set_output(1, c->MakeShape({c->UnknownDim(), c->UnknownDim()}));
      c->set_output(2, c->MakeShape({c->UnknownDim()}));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Returns what changed since the last call of a consumer. If the table is trained meanwhile, a change is in this call or in
the next one.

table: handle of the table.
consumer: scalar, as for ElasticTableFollow.
keys: [n], of rows that are new or have changed.
weights: [n, dim]
gone: [m], keys that have no weights any more: evicted, or released because they were zero. None of them is in `keys`.
)doc");

/// Reads the consumer, or returns an error.
absl::Status ReadConsumer(OpKernelContext* context, const ElasticTable& table, int* consumer) {
  const Tensor& input = context->input(1);
  const int64_t number = input.NumElements() == 1 ? input.flat<int64_t>()(0) : -1;
  if (number < 0 || number >= kConsumers) {
    return TableError(table, "consumer ", number, ", expected 0 to ", kConsumers - 1);
  }
  *consumer = static_cast<int>(number);
  return absl::OkStatus();
}

class FollowOp final : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    TablePointer found;
    OP_REQUIRES_OK(context, FindTable(context, 0, &found));
    int consumer = 0;
    OP_REQUIRES_OK(context, ReadConsumer(context, found->table, &consumer));
    OP_REQUIRES_OK(context, Guarded(found->table, [&] { found->table.AddConsumer(consumer); }));
  }
};

class CollectOp final : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    TablePointer found;
    OP_REQUIRES_OK(context, FindTable(context, 0, &found));
    ElasticTable& table = found->table;
    int consumer = 0;
    OP_REQUIRES_OK(context, ReadConsumer(context, table, &consumer));
    const bool strings = table.config().string_keys;
    OP_REQUIRES(context, context->expected_output_dtype(0) == (strings ? tensorflow::DT_STRING : tensorflow::DT_INT64),
                TableError(table, "Tkeys is not the type of its keys"));
    if (strings) {
      OP_REQUIRES_OK(context, Run<tstring>(context, &table, consumer));
    } else {
      OP_REQUIRES_OK(context, Run<int64_t>(context, &table, consumer));
    }
  }

 private:
  template <typename Key>
  static Key KeyOf(uint64_t key, std::string_view text) {
    if constexpr (std::is_same_v<Key, tstring>) {
      return tstring(text.data(), text.size());
    } else {
      return static_cast<int64_t>(key);
    }
  }

  template <typename Key>
  static absl::Status Run(OpKernelContext* context, ElasticTable* table, int consumer) {
    using Plain = std::conditional_t<std::is_same_v<Key, tstring>, std::string, Key>;
    const int64_t dim = static_cast<int64_t>(table->layout().dim);
    std::vector<Key> keys, gone;
    std::vector<float> weights;
    const absl::Status status = Guarded(*table, [&] {
      table->Collect(
          consumer,
          [&](const RowView& row) {
            if (row.weights == nullptr) {
              gone.push_back(KeyOf<Key>(row.key, row.text));
              return;
            }
            keys.push_back(KeyOf<Key>(row.key, row.text));
            weights.insert(weights.end(), row.weights, row.weights + dim);
          },
          [&](uint64_t key, std::string_view text) { gone.push_back(KeyOf<Key>(key, text)); });
    });
    if (!status.ok()) return status;
    if (!gone.empty()) {
      // A key that was evicted may be back, and one may have been evicted more than once.
      std::unordered_set<Plain> seen(keys.begin(), keys.end());
      gone.erase(
          std::remove_if(gone.begin(), gone.end(), [&](const Key& key) { return !seen.insert(Plain(key)).second; }),
          gone.end());
    }
    Tensor *key_output = nullptr, *weight_output = nullptr, *gone_output = nullptr;
    const int64_t count = static_cast<int64_t>(keys.size()), gone_count = static_cast<int64_t>(gone.size());
    if (absl::Status s = context->allocate_output(0, TensorShape({count}), &key_output); !s.ok()) return s;
    if (absl::Status s = context->allocate_output(1, TensorShape({count, dim}), &weight_output); !s.ok()) return s;
    if (absl::Status s = context->allocate_output(2, TensorShape({gone_count}), &gone_output); !s.ok()) return s;
    std::copy(keys.begin(), keys.end(), key_output->flat<Key>().data());
    std::copy(weights.begin(), weights.end(), weight_output->flat<float>().data());
    std::copy(gone.begin(), gone.end(), gone_output->flat<Key>().data());
    return absl::OkStatus();
  }
};

REGISTER_KERNEL_BUILDER(Name("ElasticTableFollow").Device(tensorflow::DEVICE_CPU), FollowOp);
REGISTER_KERNEL_BUILDER(Name("ElasticTableCollect").Device(tensorflow::DEVICE_CPU), CollectOp);

}  // namespace
}  // namespace elastic_training
