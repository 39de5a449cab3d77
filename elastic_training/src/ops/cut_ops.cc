// SPDX-License-Identifier: Apache-2.0
// ElasticTableCutBegin, ..Read, ..Evicted, ..Filter and ..End: a consistent cut over tables, read while training goes on.
#include <algorithm>
#include <memory>
#include <vector>

#include "src/cut/model_cut.h"
#include "src/ops/cut_resource.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace elastic_training {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ScalarShape;

absl::Status ScalarsAndColumns(InferenceContext* c) {
  for (int i = 0; i < c->num_outputs(); ++i) c->set_output(i, c->UnknownShape());
  return absl::OkStatus();
}

REGISTER_OP("ElasticTableCutBegin")
    .Input("tables: N * resource")
    .Input("base: int64")
    .Input("token: int64")
    .Input("memory_bytes: int64")
    .Output("cut: resource")
    .Output("changes_only: bool")
    .Output("steps: int64")
    .Output("occurrences: int64")
    .Attr("N: int >= 1")
    .Attr("leaves_ssd: bool = false")
    .SetIsStateful()
    .SetShapeFn(ScalarsAndColumns)
    .Doc(R"doc(
Begins a cut: what is read of it is what the tables were between the calls of two ops, although training goes on.

tables: handles of the tables; a table has one cut at a time.
base: token of the cut whose changes are wanted; 0 for all rows.
token: not 0 if a later cut may be of the changes since this one.
memory_bytes: training waits while it has changed so many bytes of rows that were not read yet.
cut: handle; the cut ends with the last copy of it.
changes_only: whether rows are the changes since `base`; otherwise all rows, because a table does not know its changes.
steps: [N] updates of each table.
occurrences: [N] keys that training has looked up in each table.
leaves_ssd: whether rows on SSD stay there: the cut then has their places and the first 40 bits of the hashes of their
  keys (but string keys whole), since the log has the rest, and `token` is what ElasticTableForget takes.
)doc");

REGISTER_OP("ElasticTableCutRead")
    .Input("cut: resource")
    .Input("table: int64")
    .Input("bytes: int64")
    .Output("keys: int64")
    .Output("lengths: uint32")
    .Output("texts: string")
    .Output("values: float")
    .Output("meta: uint32")
    .SetIsStateful()
    .SetShapeFn(ScalarsAndColumns)
    .Doc(R"doc(
Returns the next rows of a cut, in no order.

cut: handle of the cut.
table: position in the list of ElasticTableCutBegin.
bytes: about how much to return.
keys: [n] keys, or fingerprints of strings; none at the end.
lengths: [n] of string keys [bytes], else [0].
texts: scalar, the string keys one after the other.
values: [rows of kind 1, columns] weights, and slots unless the cut is of ElasticTableChangesBegin.
meta: [n, 3]: last touch [s since 2020-01-01 UTC], count, kind (1 row, 2 released row, 3 candidate; of rows that stay on
  SSD, rounded touches and counts, and the place with the highest of 32 bits).
)doc");

REGISTER_OP("ElasticTableCutEvicted")
    .Input("cut: resource")
    .Input("table: int64")
    .Output("keys: int64")
    .Output("lengths: uint32")
    .Output("texts: string")
    .SetIsStateful()
    .SetShapeFn(ScalarsAndColumns)
    .Doc(R"doc(
Returns the keys that were evicted between the cut `base` and this one; those that came back are among the rows too.

cut: handle of the cut.
table: position in the list of ElasticTableCutBegin.
keys: [n] keys, or fingerprints of strings.
lengths: [n] of string keys [bytes], else [0].
texts: scalar, the string keys one after the other.
)doc");

REGISTER_OP("ElasticTableCutFilter")
    .Input("cut: resource")
    .Input("table: int64")
    .Output("state: string")
    .SetIsStateful()
    .SetShapeFn(ScalarShape)
    .Doc(R"doc(
Returns the state of the filter of admission as of the cut; may be called once.

cut: handle of the cut.
table: position in the list of ElasticTableCutBegin.
state: scalar, for ElasticTableSetState.
)doc");

REGISTER_OP("ElasticTableCutPromise")
    .Input("cut: resource")
    .Input("table: int64")
    .Output("run: string")
    .SetIsStateful()
    .SetShapeFn(ScalarShape)
    .Doc(R"doc(
Brings the rows of a cut that stay on SSD to the device; they can be resumed from then on.

cut: handle of the cut, all of whose rows were read.
table: position in the list of ElasticTableCutBegin.
run: scalar, for ElasticTableResume; empty if no rows stay on SSD.
)doc");

REGISTER_OP("ElasticTableCutEnd")
    .Input("cut: resource")
    .Input("succeeded: bool")
    .Output("whole: bool")
    .SetIsStateful()
    .SetShapeFn(ScalarShape)
    .Doc(R"doc(
Ends a cut.

cut: handle of the cut.
succeeded: whether all was kept elsewhere, so that the next cut may be of the changes since this one.
whole: whether it succeeded, and what was read had all rows as they were.
)doc");

class CutBeginOp : public OpKernel {
 public:
  explicit CutBeginOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("N", &count_));
    OP_REQUIRES_OK(context, context->GetAttr("leaves_ssd", &leaves_ssd_));
  }

  void Compute(OpKernelContext* context) override {
    const auto scalar = [&](int i) { return context->input(count_ + i).flat<int64_t>()(0); };
    for (int i = 0; i < 3; ++i) {
      OP_REQUIRES(context, context->input(count_ + i).NumElements() == 1,
                  absl::InvalidArgumentError("cut: base, token or memory_bytes has several elements, expected one"));
    }
    OP_REQUIRES(context, scalar(2) > 0,
                absl::InvalidArgumentError(absl::StrCat("cut: memory_bytes is ", scalar(2), ", expected at least 1")));
    CutSettings settings;
    settings.base = static_cast<uint64_t>(scalar(0));
    settings.token = static_cast<uint64_t>(scalar(1));
    settings.memory_bytes = static_cast<size_t>(scalar(2));
    settings.leaves_ssd = leaves_ssd_;
    ModelCut* cut = nullptr;
    BeginCut(context, count_, [&](const std::vector<ElasticTable*>& tables) {
      auto made = std::make_unique<ModelCut>(tables, settings);
      cut = made.get();
      return made;
    });
    if (!context->status().ok()) return;
    Tensor *changes_only = nullptr, *steps = nullptr, *occurrences = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(1, TensorShape({}), &changes_only));
    OP_REQUIRES_OK(context, context->allocate_output(2, TensorShape({count_}), &steps));
    OP_REQUIRES_OK(context, context->allocate_output(3, TensorShape({count_}), &occurrences));
    changes_only->scalar<bool>()() = cut->changes_only();
    for (int i = 0; i < count_; ++i) {
      steps->flat<int64_t>()(i) = static_cast<int64_t>(cut->at(i).step());
      occurrences->flat<int64_t>()(i) = static_cast<int64_t>(cut->at(i).occurrences());
    }
  }

 private:
  int count_ = 0;
  bool leaves_ssd_ = false;
};

// An op on one table of a cut.
class CutTableOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    CutPointer cut;
    OP_REQUIRES_OK(context, tensorflow::LookupResource(context, tensorflow::HandleFromInput(context, 0), &cut));
    const int64_t table = context->input(1).NumElements() == 1 ? context->input(1).flat<int64_t>()(0) : -1;
    OP_REQUIRES(context, table >= 0 && table < static_cast<int64_t>(cut->cut->size()),
                absl::InvalidArgumentError(
                    absl::StrCat("cut: table ", table, ", expected one number below ", cut->cut->size())));
    OP_REQUIRES_OK(context, Run(context, &cut->cut->at(table)));
  }

 protected:
  virtual absl::Status Run(OpKernelContext* context, TableReader* cut) = 0;

  template <typename T>
  static absl::Status Write(OpKernelContext* context, int output, const TensorShape& shape,
                            const std::vector<T>& values) {
    Tensor* tensor = nullptr;
    if (absl::Status s = context->allocate_output(output, shape, &tensor); !s.ok()) return s;
    if (!values.empty()) std::memcpy(tensor->data(), values.data(), values.size() * sizeof(T));
    return absl::OkStatus();
  }

  static absl::Status WriteKeys(OpKernelContext* context, const RowBlock& block) {
    const TensorShape rows({static_cast<int64_t>(block.keys.size())});
    if (absl::Status s = Write(context, 0, rows, block.keys); !s.ok()) return s;
    const TensorShape lengths({static_cast<int64_t>(block.lengths.size())});
    if (absl::Status s = Write(context, 1, lengths, block.lengths); !s.ok()) return s;
    Tensor* texts = nullptr;
    if (absl::Status s = context->allocate_output(2, TensorShape({}), &texts); !s.ok()) return s;
    texts->scalar<tensorflow::tstring>()() = block.texts;
    return absl::OkStatus();
  }
};

class CutReadOp final : public CutTableOp {
 public:
  using CutTableOp::CutTableOp;

 protected:
  absl::Status Run(OpKernelContext* context, TableReader* cut) override {
    const int64_t bytes = context->input(2).NumElements() == 1 ? context->input(2).flat<int64_t>()(0) : 0;
    if (bytes < 1) return TableError(cut->table(), "cut: bytes is ", bytes, ", expected at least 1");
    RowBlock block;
    const absl::Status status = Attempt([&] { block = cut->Read(static_cast<size_t>(bytes)); });
    if (!status.ok()) return status;
    if (absl::Status s = WriteKeys(context, block); !s.ok()) return s;
    const int64_t columns = static_cast<int64_t>(cut->columns());
    const TensorShape values({static_cast<int64_t>(block.values.size()) / columns, columns});
    if (absl::Status s = Write(context, 3, values, block.values); !s.ok()) return s;
    return Write(context, 4, TensorShape({static_cast<int64_t>(block.keys.size()), 3}), block.meta);
  }
};

class CutEvictedOp final : public CutTableOp {
 public:
  using CutTableOp::CutTableOp;

 protected:
  absl::Status Run(OpKernelContext* context, TableReader* cut) override {
    return WriteKeys(context, cut->TakeEvicted());
  }
};

class CutFilterOp final : public CutTableOp {
 public:
  using CutTableOp::CutTableOp;

 protected:
  absl::Status Run(OpKernelContext* context, TableReader* cut) override {
    auto* const with_filter = dynamic_cast<TableCut*>(cut);
    if (with_filter == nullptr) return TableError(cut->table(), "the cut is one of changes, expected a checkpoint's");
    Tensor* state = nullptr;
    if (absl::Status s = context->allocate_output(0, TensorShape({}), &state); !s.ok()) return s;
    return Attempt([&] { state->scalar<tensorflow::tstring>()() = with_filter->TakeFilter(); });
  }
};

class CutPromiseOp final : public CutTableOp {
 public:
  using CutTableOp::CutTableOp;

 protected:
  absl::Status Run(OpKernelContext* context, TableReader* cut) override {
    auto* const with_pin = dynamic_cast<TableCut*>(cut);
    if (with_pin == nullptr) return TableError(cut->table(), "the cut is one of changes, expected a checkpoint's");
    Tensor* run = nullptr;
    if (absl::Status s = context->allocate_output(0, TensorShape({}), &run); !s.ok()) return s;
    return Guarded(cut->table(), [&] { run->scalar<tensorflow::tstring>()() = with_pin->Promise(); });
  }
};

class CutEndOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    CutPointer cut;
    OP_REQUIRES_OK(context, tensorflow::LookupResource(context, tensorflow::HandleFromInput(context, 0), &cut));
    OP_REQUIRES(context, context->input(1).NumElements() == 1,
                absl::InvalidArgumentError("cut: succeeded has several elements, expected one"));
    Tensor* whole = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &whole));
    whole->scalar<bool>()() = cut->cut->End(context->input(1).flat<bool>()(0));
  }
};

REGISTER_KERNEL_BUILDER(Name("ElasticTableCutBegin").Device(tensorflow::DEVICE_CPU), CutBeginOp);
REGISTER_KERNEL_BUILDER(Name("ElasticTableCutRead").Device(tensorflow::DEVICE_CPU), CutReadOp);
REGISTER_KERNEL_BUILDER(Name("ElasticTableCutEvicted").Device(tensorflow::DEVICE_CPU), CutEvictedOp);
REGISTER_KERNEL_BUILDER(Name("ElasticTableCutFilter").Device(tensorflow::DEVICE_CPU), CutFilterOp);
REGISTER_KERNEL_BUILDER(Name("ElasticTableCutPromise").Device(tensorflow::DEVICE_CPU), CutPromiseOp);
REGISTER_KERNEL_BUILDER(Name("ElasticTableCutEnd").Device(tensorflow::DEVICE_CPU), CutEndOp);

}  // namespace
}  // namespace elastic_training
