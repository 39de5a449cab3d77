// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "src/kernels/dense_tower.h"
#include "src/kernels/interruption.h"
#include "src/kernels/live_weights.h"
#include "src/kernels/precision.h"
#include "src/kernels/prepared_kernel.h"
#include "src/kernels/ready_tower.h"
#include "src/kernels/tower_layout.h"
#include "src/kernels/tower_run.h"
#include "src/kernels/tower_team.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/platform/hash.h"
#include "tensorflow/core/util/util.h"
#include "tensorflow/core/util/work_sharder.h"

namespace processor {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::ResourceMgr;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::shape_inference::InferenceContext;

constexpr const char* kContainer = "recprocessor_packed";
// Fewer rows than this are not worth another thread: it would read all weights for them.
constexpr int64_t kRowsPerThread = 32;
// From about this many rows on, a request computes for longer than it waits for weights.
constexpr int64_t kTeamRows = 4;

REGISTER_OP("RecDenseTower")
    .Input("inputs: num_inputs * float")
    .Input("weights: num_weights * float")
    .Input("view: num_views * variant")
    .Output("outputs: num_outputs * float")
    .Attr("num_inputs: int >= 1")
    .Attr("num_weights: int >= 0")
    .Attr("num_outputs: int >= 1")
    .Attr("plan: string")
    .Attr("precision: {'auto', 'fp32', 'bf16', 'bf16_weights', 'int8'} = 'auto'")
    .Attr("num_views: int >= 0 = 0")
    .Attr("formulas: list(string) = []")
    .SetShapeFn(tensorflow::shape_inference::UnknownShape)
    .Doc(R"doc(
Computes dense layers and what is between them.

inputs: [..., k] each; all dimensions but the last are rows. All have the same number of rows, or one row that counts
  for all.
weights: matrices [k, units] or [units, k], vectors [k] or [1]. They are packed once per model version; later changes
  are not seen.
view: at most one, of RecPinView: the op reads the weights at its epoch. The inputs hold those of epoch 0.
formulas: for each weight the name of the formula that computes it at later epochs, or '' if it never changes; none
  without a view.
outputs: [..., width] each, with the leading dimensions of the input with the most dimensions, of those with all rows.
plan: the layers, as JSON; see docs/fused_ops.md.
precision: fp32, bf16, bf16_weights (only weights are rounded), int8, or auto, which is fp32 unless the library has replaced it when it loaded the model.
)doc");

// A packed tower in the resource manager, which the sessions of a model version share.
class PackedTower : public tensorflow::ResourceBase {
 public:
  explicit PackedTower(std::shared_ptr<const ReadyTower> tower) : tower_(std::move(tower)) {}
  const ReadyTower& tower() const { return *tower_; }
  std::string DebugString() const override { return absl::StrCat("dense tower of ", MemoryUsed(), " bytes"); }
  int64_t MemoryUsed() const override { return static_cast<int64_t>(tower_->tower().bytes()); }

 private:
  const std::shared_ptr<const ReadyTower> tower_;
};

WeightView ViewOf(const Tensor& tensor) {
  WeightView view;
  view.data = tensor.flat<float>().data();
  for (int i = 0; i < tensor.dims(); ++i) view.shape.push_back(tensor.dim_size(i));
  return view;
}

class DenseTowerOp : public tensorflow::OpKernel, public PreparedKernel {
 public:
  explicit DenseTowerOp(OpKernelConstruction* context) : OpKernel(context) {
    std::string precision;
    int num_outputs = 0;
    OP_REQUIRES_OK(context, context->GetAttr("num_inputs", &num_inputs_));
    OP_REQUIRES_OK(context, context->GetAttr("num_weights", &num_weights_));
    OP_REQUIRES_OK(context, context->GetAttr("num_outputs", &num_outputs));
    OP_REQUIRES_OK(context, context->GetAttr("plan", &plan_text_));
    OP_REQUIRES_OK(context, context->GetAttr("precision", &precision));
    OP_REQUIRES_OK(context, Named(ParseTowerPlan(plan_text_, num_inputs_, num_weights_, num_outputs, &plan_)));
    OP_REQUIRES_OK(context, Named(Options(precision, &options_)));
    const auto make = [this](const LiveWeights::Weights& weights, const std::string& of_view,
                             std::shared_ptr<const void>* object) {
      TowerOptions options = options_;
      if (absl::Status s = of_view.empty() ? absl::OkStatus() : Options(of_view, &options); !s.ok()) return s;
      std::shared_ptr<const ReadyTower> tower;
      if (absl::Status s = MakeTower(weights, options, &tower); !s.ok()) return s;
      *object = tower;
      return tower->PrepareLayouts(num_inputs_);
    };
    OP_REQUIRES_OK(context, live_.Read(context, num_inputs_, num_weights_, /*has_precision=*/true, make));
  }

  absl::Status Prepare(absl::Span<const Tensor* const> constant_inputs, ResourceMgr* resources) override {
    std::vector<const Tensor*> weights;
    for (int i = 0; i < num_weights_; ++i) {
      const size_t at = static_cast<size_t>(num_inputs_ + i);
      if (at >= constant_inputs.size() || constant_inputs[at] == nullptr) return absl::OkStatus();
      weights.push_back(constant_inputs[at]);
    }
    if (absl::Status s = FindTower(weights, resources); !s.ok()) return s;
    return Named(packed_->tower().PrepareLayouts(num_inputs_));
  }

  void Compute(OpKernelContext* context) override {
    if (!ready_.load(std::memory_order_acquire)) {
      std::vector<const Tensor*> weights;
      for (int i = 0; i < num_weights_; ++i) weights.push_back(&context->input(num_inputs_ + i));
      OP_REQUIRES_OK(context, FindTower(weights, context->resource_manager()));
    }
    const void* changed = nullptr;
    OP_REQUIRES_OK(context, live_.Find(context, print_, &changed));
    const ReadyTower& tower = changed == nullptr ? packed_->tower() : *static_cast<const ReadyTower*>(changed);
    absl::InlinedVector<TowerInput, 8> inputs;
    int64_t rows = 1;
    int shape_from = 0;
    OP_REQUIRES_OK(context, TakeInputs(context, &inputs, &rows, &shape_from));
    const TowerLayout* layout = nullptr;
    std::shared_ptr<const TowerLayout> own_layout;  // if too many are kept already
    OP_REQUIRES_OK(context, Named(tower.FindLayout(inputs, rows, &layout, &own_layout)));

    absl::InlinedVector<float*, 8> outputs;
    for (int i = 0; i < num_outputs(); ++i) {
      TensorShape shape = context->input(shape_from).shape();
      shape.set_dim(shape.dims() - 1, layout->output_width(i));
      Tensor* output = nullptr;
      OP_REQUIRES_OK(context, context->allocate_output(i, shape, &output));
      outputs.push_back(output->flat<float>().data());
    }
    if (rows == 0 || RunInTeam(tower.teams(), *layout, inputs, outputs, rows)) return;
    OP_REQUIRES_OK(context, Named(Run(context, *layout, inputs, outputs, rows)));
  }

 private:
  absl::Status Named(const absl::Status& status) const {
    if (status.ok()) return status;
    return absl::Status(status.code(), absl::StrCat("node '", name(), "': ", status.message()));
  }

  absl::Status FindTower(const std::vector<const Tensor*>& weights, ResourceMgr* resources) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (ready_.load(std::memory_order_relaxed)) return absl::OkStatus();
    // Equal nodes of two signatures share what is packed; whatever differs has another name.
    const auto hash = [](std::string_view text, uint64_t seed) {
      return tensorflow::Hash64(text.data(), text.size(), seed);
    };
    uint64_t print = hash(PrecisionName(options_.precision), hash(plan_text_, 0));
    for (const Tensor* weight : weights) {
      print = hash(weight->tensor_data(), hash(weight->shape().DebugString(), print));
    }
    PackedTower* found = nullptr;
    const absl::Status status = resources->LookupOrCreate<PackedTower>(
        kContainer, absl::StrCat(name(), "/", absl::Hex(print)), &found, [&](PackedTower** made) {
          std::shared_ptr<const ReadyTower> tower;
          if (absl::Status s = MakeTower(weights, options_, &tower); !s.ok()) return s;
          *made = new PackedTower(std::move(tower));
          return absl::OkStatus();
        });
    if (!status.ok()) return Named(status);
    packed_.reset(found);
    print_ = print;
    ready_.store(true, std::memory_order_release);
    return absl::OkStatus();
  }

  static absl::Status Options(const std::string& precision, TowerOptions* options) {
    Precision chosen = Precision::kFloat32;
    if (absl::Status s = ChoosePrecision(precision, ThisCpu(), &chosen); !s.ok()) return s;
    *options = TowerOptions::For(chosen, ThisCpu());
    options->stock_onednn = tensorflow::IsMKLEnabled();
    return absl::OkStatus();
  }

  absl::Status MakeTower(const std::vector<const Tensor*>& weights, const TowerOptions& options,
                         std::shared_ptr<const ReadyTower>* made) const {
    std::vector<WeightView> views;
    for (const Tensor* weight : weights) views.push_back(ViewOf(*weight));
    std::shared_ptr<const DenseTower> tower;
    if (absl::Status s = DenseTower::Create(plan_, views, options, &tower); !s.ok()) return s;
    *made = std::make_shared<const ReadyTower>(std::move(tower), kTeamRows);
    return absl::OkStatus();
  }

  absl::Status TakeInputs(OpKernelContext* context, absl::InlinedVector<TowerInput, 8>* inputs, int64_t* rows,
                          int* shape_from) const {
    for (int i = 0; i < num_inputs_; ++i) {
      const Tensor& tensor = context->input(i);
      if (tensor.dims() < 1) {
        return Named(absl::InvalidArgumentError(absl::StrCat("input ", i, ": a scalar, expected [..., columns]")));
      }
      const int64_t width = tensor.dim_size(tensor.dims() - 1);
      int64_t input_rows = 1;
      for (int d = 0; d + 1 < tensor.dims(); ++d) input_rows *= tensor.dim_size(d);
      inputs->push_back({tensor.flat<float>().data(), input_rows, width});
      const int dims = context->input(*shape_from).dims();
      if (input_rows == *rows) {
        if (tensor.dims() > dims) *shape_from = i;
      } else if (*rows == 1) {
        *rows = input_rows;
        *shape_from = i;
      } else if (input_rows != 1) {
        return Named(absl::InvalidArgumentError(absl::StrCat("input ", i, ": ", input_rows, " rows (shape ",
                                                             tensor.shape().DebugString(), "), expected ", *rows,
                                                             " as input ", *shape_from, " has, or 1")));
      }
    }
    return absl::OkStatus();
  }

  // Computes a few rows together with other requests that are here now. False: there are none, or one of them failed.
  static bool RunInTeam(TowerTeams& teams, const TowerLayout& layout, absl::Span<const TowerInput> inputs,
                        absl::Span<float* const> outputs, int64_t rows) {
    if (rows > kTeamRows || !layout.MayBeShared()) return false;
    constexpr int64_t kMostRows = kTeamRows * TowerTeams::kMostMembers;
    // A cache line for each, so that members do not write to one.
    const auto place = [](int64_t width) { return (kMostRows * width + 15) / 16 * 16; };
    uint64_t kind = 0;
    int64_t floats = layout.block_floats(kMostRows) + 16;
    for (const TowerInput& input : inputs) {
      kind = kind * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(input.width) + 1;
      floats += place(input.width);
    }
    for (size_t i = 0; i < outputs.size(); ++i) floats += place(layout.output_width(i));

    // Whatever needs memory comes first: the others would wait for a member that fails.
    absl::InlinedVector<TowerInput, 8> all_inputs;
    absl::InlinedVector<float*, 8> all_outputs;
    all_inputs.reserve(inputs.size());
    all_outputs.reserve(outputs.size());
    TowerTeams::Seat seat;
    if (!teams.Join(rows, kind, floats, &seat)) return false;
    float* next = seat.memory();
    for (const TowerInput& input : inputs) {
      all_inputs.push_back({next, seat.team_rows(), input.width});
      std::copy_n(input.data, rows * input.width, next + seat.first_row() * input.width);
      next += place(input.width);
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      all_outputs.push_back(next);
      next += place(layout.output_width(i));
    }
    if (!seat.Sync()) return false;
    if (!TowerRun(layout, all_inputs, all_outputs, nullptr).ComputeTogether(seat.team_rows(), next, seat)) return false;
    seat.Complete();
    for (size_t i = 0; i < outputs.size(); ++i) {
      const int64_t width = layout.output_width(i);
      std::copy_n(all_outputs[i] + seat.first_row() * width, rows * width, outputs[i]);
    }
    return true;
  }

  static absl::Status Run(OpKernelContext* context, const TowerLayout& layout, absl::Span<const TowerInput> inputs,
                          absl::Span<float* const> outputs, int64_t rows) {
    const auto* workers = context->device()->tensorflow_cpu_worker_threads();
    const int64_t threads = workers == nullptr || workers->workers == nullptr ? 1 : workers->num_threads;
    const int64_t shards = std::clamp<int64_t>(rows / kRowsPerThread, 1, std::max<int64_t>(threads, 1));
    const int64_t block_rows = std::min(layout.block_rows(), (rows + shards - 1) / shards);
    // Both begin on a cache line, as the tensor does.
    const int64_t block_floats = (layout.block_floats(block_rows) + 15) / 16 * 16;
    Tensor scratch;
    const absl::Status allocated = context->allocate_temp(
        tensorflow::DT_FLOAT, TensorShape({layout.single_floats() + shards * block_floats}), &scratch);
    if (!allocated.ok()) return allocated;
    float* const single = scratch.flat<float>().data();
    float* const blocks = single + layout.single_floats();

    const TowerRun run(layout, inputs, outputs, single);
    if (absl::Status s = run.ComputeSingles(); !s.ok()) return s;
    const Interruption interruption(context);
    const auto look = [&interruption] { return interruption.status(); };
    if (shards == 1) return run.ComputeRows(0, rows, block_rows, blocks, look);
    std::mutex mutex;
    absl::Status status;
    const auto compute = [&](int64_t begin, int64_t end) {
      for (int64_t shard = begin; shard < end; ++shard) {
        const absl::Status s = run.ComputeRows(rows * shard / shards, rows * (shard + 1) / shards, block_rows,
                                               blocks + shard * block_floats, look);
        if (s.ok()) continue;
        std::lock_guard<std::mutex> lock(mutex);
        status = s;
      }
    };
    // A cost that makes every shard a piece of its own.
    tensorflow::Shard(static_cast<int>(threads), workers->workers, shards, int64_t{1} << 30, compute);
    return status;
  }

  int num_inputs_ = 0;
  int num_weights_ = 0;
  std::string plan_text_;
  TowerPlan plan_;
  TowerOptions options_;
  std::atomic<bool> ready_{false};
  std::mutex mutex_;
  tensorflow::core::RefCountPtr<PackedTower> packed_;
  uint64_t print_ = 0;
  LiveWeights live_;  // the last member, because it uses the others until it is destroyed
};

REGISTER_KERNEL_BUILDER(Name("RecDenseTower").Device(tensorflow::DEVICE_CPU), DenseTowerOp);

}  // namespace
}  // namespace processor
