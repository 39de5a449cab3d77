// SPDX-License-Identifier: Apache-2.0
// RecEmbeddingGroup: features in, columns of a tower's input out.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "src/base/kept_objects.h"
#include "src/kernels/embedding_binding.h"
#include "src/kernels/embedding_gather.h"
#include "src/kernels/embedding_plan.h"
#include "src/kernels/embedding_request.h"
#include "src/kernels/embedding_table_resource.h"
#include "src/kernels/interruption.h"
#include "src/kernels/key_steps.h"
#include "src/live/epoch_view.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/util/work_sharder.h"

namespace processor {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// Of a node or of a kernel that is made: both know the attributes.
template <class Attributes>
absl::Status ReadPlan(const Attributes& attributes, std::vector<tensorflow::DataType>* types, EmbeddingPlan* plan) {
  std::string text;
  int tables = 0, outputs = 0;
  absl::Status status = attributes.GetAttr("plan", &text);
  if (status.ok()) status = attributes.GetAttr("Tfeatures", types);
  if (status.ok()) status = attributes.GetAttr("num_tables", &tables);
  if (status.ok()) status = attributes.GetAttr("num_outputs", &outputs);
  if (!status.ok()) return status;
  return ParseEmbeddingPlan(text, static_cast<int>(types->size()), tables, outputs, plan);
}

absl::Status InferShapes(InferenceContext* c) {
  EmbeddingPlan plan;
  std::vector<tensorflow::DataType> types;
  if (absl::Status read = ReadPlan(*c, &types, &plan); !read.ok()) return read;
  DimensionHandle batch = c->UnknownDim();
  const auto merge_rows = [&](int feature) {
    ShapeHandle shape = c->input(feature);
    absl::Status status = c->WithRankAtLeast(shape, 1, &shape);
    return status.ok() && c->RankKnown(shape) ? c->Merge(batch, c->Dim(shape, 0), &batch) : status;
  };
  for (const PlanKey& key : plan.keys) {
    if (key.layout != KeyLayout::kDense) continue;
    if (absl::Status merged = merge_rows(key.feature); !merged.ok()) return merged;
  }
  for (const PlanColumn& column : plan.columns) {
    if (column.kind == ColumnKind::kLookup) continue;
    if (absl::Status merged = merge_rows(column.feature); !merged.ok()) return merged;
  }
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    const PlanOutput& output = plan.outputs[i];
    const DimensionHandle width = c->MakeDim(output.width);
    if (output.sequence < 0) {
      c->set_output(static_cast<int>(i), c->Matrix(batch, width));
      continue;
    }
    ShapeHandle shape = c->input(plan.keys[output.sequence].feature);
    if (absl::Status ranked = c->WithRankAtLeast(shape, 2, &shape); !ranked.ok()) return ranked;
    const DimensionHandle length = c->RankKnown(shape) ? c->Dim(shape, 1) : c->UnknownDim();
    c->set_output(static_cast<int>(i), c->MakeShape({batch, length, width}));
  }
  return absl::OkStatus();
}

REGISTER_OP("RecEmbeddingGroup")
    .Input("features: Tfeatures")
    .Input("tables: num_tables * resource")
    .Input("view: num_views * variant")
    .Output("outputs: num_outputs * float")
    .Attr("Tfeatures: list(type) >= 1")
    .Attr("num_tables: int >= 0")
    .Attr("num_outputs: int >= 1")
    .Attr("plan: string")
    .Attr("max_rows: int >= 1 = 1048576")
    .Attr("num_views: int >= 0 = 0")
    .Attr("formulas: list(string) = []")
    .SetShapeFn(InferShapes)
    .Doc(R"doc(
Looks features up in embedding tables, pools and concatenates what it finds.

features: what a request brings.
tables: handles of RecEmbeddingTable, initialized. A kernel keeps the tables that it found first.
view: at most one, of RecPinView: the op reads the rows at its epoch.
plan: JSON, see docs/fused_ops.md.
max_rows: how many rows a request may have. Whoever serves a graph sets it.
formulas: none, or for each output that of `initial`, then for each column that of `weights`: the name of the formula that
  computes it at later epochs, or '' if it never changes. The plan has the numbers of epoch 0.
outputs: [batch, width] or [batch, T, width] each, as the plan says.
)doc");

// A block of rows: enough values to keep memory busy, few enough that what is written stays in the cache.
constexpr int64_t kBlockValues = 4096;
constexpr int64_t kLeastBlock = 8;
// Work that is worth waking another thread for, in values.
constexpr int64_t kSplitValues = 16384;
constexpr int64_t kValueCost = 40;  // cycles of one, about
// Of a large request, memory is given back.
constexpr int64_t kKeptBytes = int64_t{4} << 20;

class EmbeddingGroupOp : public OpKernel {
 public:
  explicit EmbeddingGroupOp(OpKernelConstruction* context) : OpKernel(context) {
    std::vector<tensorflow::DataType> types;
    OP_REQUIRES_OK(context, ReadPlan(*context, &types, &plan_));
    OP_REQUIRES_OK(context, context->GetAttr("max_rows", &max_rows_));
    OP_REQUIRES_OK(context, context->GetAttr("num_tables", &tables_));
    OP_REQUIRES_OK(context, ReadLive(context));
    OP_REQUIRES_OK(context, CheckFeatureTypes(plan_, types));
    features_ = static_cast<int>(types.size());
    for (size_t k = 0; k < plan_.keys.size(); ++k) {
      KeySteps steps;
      const absl::Status made = KeySteps::Make(plan_.keys[k], types[plan_.keys[k].feature], &steps);
      OP_REQUIRES(context, made.ok(),
                  absl::InvalidArgumentError(absl::StrCat("embedding plan: key ", k, ": ", made.message())));
      if (k > 0) steps.ShareWith(plan_.keys[k - 1], plan_.keys[k]);
      steps_.push_back(std::move(steps));
    }
  }

  void Compute(OpKernelContext* context) override {
    std::unique_ptr<Work> work = works_.Take();
    EmbeddingRequest& request = work->request;
    request.features.resize(features_);
    for (int i = 0; i < features_; ++i) View(context->input(i), &request.features[i]);
    request.max_rows = max_rows_;
    request.early = EarlyRowsScope::Current();
    // Held like the memory of any op, so that it counts where that does; it is not touched.
    Tensor reserved;
    const auto reserve = [&](int64_t bytes) {
      if (bytes <= kKeptBytes) return absl::OkStatus();
      return context->allocate_temp(tensorflow::DT_UINT8, TensorShape({bytes}), &reserved);
    };
    OP_REQUIRES_OK(context, LayOutRequest(plan_, reserve, &request));
    request.view = nullptr;
    if (views_ > 0) OP_REQUIRES_OK(context, ReadViewTensor(context->input(features_ + tables_), &request.view));
    OP_REQUIRES_OK(context, Bind(context, request, &work->bound));
    if (request.view != nullptr || work->taken != work->bound.get()) {
      work->taken = nullptr;
      OP_REQUIRES_OK(context, TakeEpoch(*work->bound, &request));
      work->taken = work->bound.get();
    }
    work->outputs.resize(plan_.outputs.size());
    for (size_t i = 0; i < work->outputs.size(); ++i) {
      OP_REQUIRES_OK(context, Allocate(context, request, static_cast<int>(i), &work->outputs[i]));
    }
    const Gather gather{plan_, steps_, *work->bound->binding, request, work->outputs};
    OP_REQUIRES_OK(context, Run(context, gather, &work->scratch));
    Keep(std::move(work));
  }

 private:
  // Tables, and the handles that they were found by. The handles are held, so that an equal address is an equal handle.
  struct Bound {
    std::vector<Tensor> handles;
    std::shared_ptr<const WeightSlots> live;            // of the live model whose numbers these are
    uint32_t layout = 0;                                // of the view whose rows these are
    std::vector<int> output_formulas, column_formulas;  // -1: never changes
    std::shared_ptr<const EmbeddingBinding> binding;
  };

  // The memory of a request, which later requests reuse, and the tables that it looked up.
  struct Work {
    std::shared_ptr<const Bound> bound;
    const Bound* taken = nullptr;  // whose rows and numbers `request` has; those of a view are taken for each request
    EmbeddingRequest request;
    std::vector<float*> outputs;
    GatherScratch scratch;
  };

  void Keep(std::unique_ptr<Work> work) {
    const bool is_small = work->request.bytes() + work->scratch.bytes() <= size_t{kKeptBytes};
    if (is_small && work->scratch.tiered.bytes() <= 2 * TieredGather::kBlockBytes) works_.Keep(std::move(work));
  }

  static void View(const Tensor& tensor, FeatureView* view) {
    view->type = tensor.dtype();
    view->data = tensor.data();
    view->elements = tensor.NumElements();
    view->rank = tensor.dims();
    view->rows = view->rank > 0 ? tensor.dim_size(0) : 0;
    view->second = view->rank > 1 ? tensor.dim_size(1) : 1;
    view->per_row = view->second;
    for (int d = 2; d < view->rank; ++d) view->per_row *= tensor.dim_size(d);
  }

  bool Fits(OpKernelContext* context, const EmbeddingRequest& request, const Bound* bound) const {
    if (bound == nullptr || !bound->binding->Fits(request)) return false;
    if (request.view != nullptr &&
        (request.view->parts().slots != bound->live || request.view->layout() != bound->layout)) {
      return false;
    }
    for (int i = 0; i < tables_; ++i) {
      if (context->input(features_ + i).data() != bound->handles[i].data()) return false;
    }
    return true;
  }

  // `bound`: what the last request with this memory used; most requests use it again, without a lock.
  absl::Status Bind(OpKernelContext* context, const EmbeddingRequest& request, std::shared_ptr<const Bound>* bound) {
    if (Fits(context, request, bound->get())) return absl::OkStatus();
    {
      absl::MutexLock lock(&mutex_);
      *bound = bound_;
    }
    if (Fits(context, request, bound->get())) return absl::OkStatus();
    auto made = std::make_shared<Bound>();
    std::vector<EmbeddingBinding::Table> found;
    for (int i = 0; i < tables_; ++i) {
      const Tensor& handle = context->input(features_ + i);
      if (handle.NumElements() != 1) {
        return absl::InvalidArgumentError(
            absl::StrCat("embedding group: table ", i, ": ", handle.NumElements(), " handles, expected one"));
      }
      tensorflow::core::RefCountPtr<EmbeddingTableResource> resource;
      if (absl::Status s = LookupEmbeddingTable(context, features_ + i, &resource); !s.ok()) return s;
      made->handles.push_back(handle);
      EmbeddingBinding::Table& table = found.emplace_back();
      table.table = resource->shared_table();
      table.rows = table.table->copies_rows() ? nullptr : table.table->row(0);
      if (request.view == nullptr) continue;
      const auto& numbers = request.view->parts().tables;
      const auto number = numbers.find(TableResourceName(handle.scalar<tensorflow::ResourceHandle>()()));
      if (number == numbers.end()) continue;
      table.live = number->second;
      if (table.rows != nullptr) table.rows = request.view->table(table.live).overlay().rows();
    }
    if (absl::Status s = BindFormulas(request, made.get()); !s.ok()) return s;
    absl::Status fitted = EmbeddingBinding::Make(plan_, steps_, std::move(found), request, &made->binding);
    if (!fitted.ok()) return fitted;
    *bound = made;
    absl::MutexLock lock(&mutex_);
    bound_ = std::move(made);
    return absl::OkStatus();
  }

  absl::Status ReadLive(OpKernelConstruction* context) {
    if (absl::Status s = context->GetAttr("num_views", &views_); !s.ok()) return s;
    if (absl::Status s = context->GetAttr("formulas", &formulas_); !s.ok()) return s;
    const size_t most = views_ == 0 ? 0 : plan_.outputs.size() + plan_.columns.size();
    if (views_ > 1 || (!formulas_.empty() && formulas_.size() != most)) {
      return absl::InvalidArgumentError(absl::StrCat("embedding group: ", views_, " views and ", formulas_.size(),
                                                     " formulas, expected at most one view, and no formulas or ",
                                                     most));
    }
    return absl::OkStatus();
  }

  absl::Status BindFormulas(const EmbeddingRequest& request, Bound* bound) const {
    if (request.view == nullptr) return absl::OkStatus();
    bound->live = request.view->parts().slots;
    bound->layout = request.view->layout();
    for (size_t i = 0; i < formulas_.size(); ++i) {
      const int number = formulas_[i].empty() ? -1 : request.view->parts().description.FormulaOf(formulas_[i]);
      if (number < 0 && !formulas_[i].empty()) {
        return absl::InvalidArgumentError(
            absl::StrCat("embedding group: formula '", formulas_[i], "', expected one of live.json"));
      }
      (i < plan_.outputs.size() ? bound->output_formulas : bound->column_formulas).push_back(number);
    }
    return absl::OkStatus();
  }

  // Collects what the epoch of the request has instead of the numbers of the plan.
  absl::Status TakeEpoch(const Bound& bound, EmbeddingRequest* request) const {
    if (absl::Status s = bound.binding->FindEmptyRows(request->view, &request->empty_rows); !s.ok()) return s;
    const auto take = [&](const std::vector<int>& formulas, size_t i, absl::Span<const float> planned,
                          absl::Span<const float>* numbers) {
      *numbers = planned;
      const Tensor* const changed = formulas.empty() || formulas[i] < 0 ? nullptr : request->view->formula(formulas[i]);
      if (changed == nullptr) return absl::OkStatus();
      *numbers = {changed->flat<float>().data(), static_cast<size_t>(changed->NumElements())};
      if (numbers->size() == planned.size()) return absl::OkStatus();
      return absl::InvalidArgumentError(absl::StrCat("embedding group: a formula has ", numbers->size(),
                                                     " elements, expected ", planned.size(), " as the plan has"));
    };
    request->initial.resize(plan_.outputs.size());
    request->matrices.resize(plan_.columns.size());
    absl::Status status;
    for (size_t i = 0; i < plan_.outputs.size() && status.ok(); ++i) {
      status = take(bound.output_formulas, i, plan_.outputs[i].initial, &request->initial[i]);
    }
    for (size_t i = 0; i < plan_.columns.size() && status.ok(); ++i) {
      status = take(bound.column_formulas, i, plan_.columns[i].matrix, &request->matrices[i]);
    }
    return status;
  }

  absl::Status Allocate(OpKernelContext* context, const EmbeddingRequest& request, int number, float** data) {
    const PlanOutput& output = plan_.outputs[number];
    TensorShape shape;
    absl::Status status = shape.AddDimWithStatus(request.batch);
    if (status.ok() && output.sequence >= 0) status = shape.AddDimWithStatus(request.Repeats(output));
    if (status.ok()) status = shape.AddDimWithStatus(output.width);
    Tensor* tensor = nullptr;
    if (status.ok()) status = context->allocate_output(number, shape, &tensor);
    if (status.ok()) *data = tensor->flat<float>().data();
    return status;
  }

  absl::Status Run(OpKernelContext* context, const Gather& gather, GatherScratch* scratch) {
    const int64_t batch = gather.request.batch;
    int64_t values = 0;
    for (const EmbeddingBinding::Lookup& lookup : gather.binding.lookups()) {
      values += gather.request.keys[lookup.key].count;
    }
    int64_t block = std::max(kLeastBlock, batch * kBlockValues / std::max<int64_t>(values, 1));
    // All rows of tiered tables that a thread needs are read at once, if that is not too much.
    if (gather.binding.has_tiered()) block = TieredGather::RowsOfBlock(gather.binding, gather.request);
    const Interruption interruption(context);
    const auto run_rows = [&](int64_t begin, int64_t end, GatherScratch* of_thread) {
      absl::Status status;
      for (int64_t row = begin; row < end && status.ok(); row += block) {
        status = gather.Rows(row, std::min(end, row + block), of_thread);
        if (status.ok()) status = interruption.status();
      }
      return status;
    };
    const auto* workers = context->device()->tensorflow_cpu_worker_threads();
    if (values < kSplitValues || batch <= block || workers == nullptr || workers->num_threads <= 1) {
      return run_rows(0, batch, scratch);
    }
    absl::Mutex mutex;
    int64_t first_wrong = batch;
    absl::Status status;
    const auto run_shard = [&](int64_t begin, int64_t end) {
      std::unique_ptr<Work> work = works_.Take();
      absl::Status shard = run_rows(begin, end, &work->scratch);
      Keep(std::move(work));
      absl::MutexLock lock(&mutex);
      // The same fault for the same request, whichever thread was faster.
      if (shard.ok() || begin >= first_wrong) return;
      status = std::move(shard);
      first_wrong = begin;
    };
    tensorflow::Shard(workers->num_threads, workers->workers, batch, kValueCost * values / batch, run_shard);
    return status;
  }

  EmbeddingPlan plan_;
  std::vector<KeySteps> steps_;
  int features_ = 0;
  int tables_ = 0;
  int views_ = 0;
  std::vector<std::string> formulas_;
  int64_t max_rows_ = 0;
  KeptObjects<Work> works_;
  absl::Mutex mutex_;
  std::shared_ptr<const Bound> bound_ ABSL_GUARDED_BY(mutex_);
};

REGISTER_KERNEL_BUILDER(Name("RecEmbeddingGroup").Device(tensorflow::DEVICE_CPU), EmbeddingGroupOp);

}  // namespace
}  // namespace processor
