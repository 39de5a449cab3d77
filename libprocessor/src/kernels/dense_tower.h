// SPDX-License-Identifier: Apache-2.0
// The dense layers of a RecDenseTower and the operations between them, with packed weights and without TensorFlow.
//
// A DenseTower has everything that does not depend on requests; all sessions of a model version share it, and any thread
// may read it. A TowerLayout places the values for given widths of the inputs; a TowerRun computes one request.
#ifndef PROCESSOR_KERNELS_DENSE_TOWER_H_
#define PROCESSOR_KERNELS_DENSE_TOWER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "src/base/huge_memory.h"
#include "src/kernels/cpu_features.h"
#include "src/kernels/float_products.h"
#include "src/kernels/onednn_matmul.h"
#include "src/kernels/precision.h"
#include "src/kernels/tower_plan.h"
#include "src/kernels/weight_panels.h"

namespace processor {

/// A weight of the op. DenseTower::Create() copies the numbers.
struct WeightView {
  const float* data = nullptr;
  std::vector<int64_t> shape;

  int64_t elements() const;
};

struct TowerOptions {
  Precision precision = Precision::kFloat32;
  Isa isa = Isa::kPlain;
  /// Whether products of more than a few rows use oneDNN.
  bool onednn = false;
  /// Whether other float products use it where it is faster than our panels, which is measured; see float_products.h.
  bool faster_floats = false;
  /// Whether TensorFlow uses oneDNN for its own products in this process; see Activation::onednn.
  bool stock_onednn = true;
  /// For int8: in which of its two forms bfloat16 serves the layers that stay bfloat16.
  Precision beside_int8 = Precision::kBfloat16Weights;

  static TowerOptions For(Precision precision, const CpuFeatures& cpu);
};

class DenseTower {
 public:
  /// One matrix of a dense layer.
  struct Product {
    PanelShape shape;
    const void* panels = nullptr;
    std::unique_ptr<OnednnMatmul> onednn;
  };
  struct Dense {
    std::vector<Product> products;  // one for each input; empty if the layer is not dense
    std::vector<float> bias;        // [units], zeros if the plan has none
    PanelType type = PanelType::kFloat32;
    int64_t units() const { return static_cast<int64_t>(bias.size()); }
  };

  /// Checks the weights and packs them.
  /// \return INVALID_ARGUMENT that names layer and weight for shapes that do not fit; RESOURCE_EXHAUSTED without memory.
  static absl::Status Create(TowerPlan plan, absl::Span<const WeightView> weights, const TowerOptions& options,
                             std::shared_ptr<const DenseTower>* tower);

  const TowerPlan& plan() const { return plan_; }
  const TowerOptions& options() const { return options_; }
  const Dense& dense(size_t layer) const { return dense_[layer]; }
  /// Returns a weight, [k] or [1], that is not a matrix of a dense layer.
  const std::vector<float>& vector(int weight) const { return vectors_[weight]; }
  /// Whether layers of bfloat16 round both factors of products.
  bool rounds_activations() const {
    return options_.precision == Precision::kBfloat16 ||
           (options_.precision == Precision::kInt8 && options_.beside_int8 == Precision::kBfloat16);
  }
  /// Returns from how many rows on float products use oneDNN; kNoOnednnRows if they never do.
  int64_t fewest_onednn_rows() const { return fewest_onednn_rows_; }
  /// Returns the bytes of the packed weights.
  size_t bytes() const;

 private:
  DenseTower(TowerPlan plan, const TowerOptions& options) : plan_(std::move(plan)), options_(options) {}

  absl::Status CheckDense(size_t number, absl::Span<const WeightView> weights);
  absl::Status TakeVector(size_t layer, const char* what, int weight, absl::Span<const WeightView> weights);
  absl::Status TakeVectors(size_t number, absl::Span<const WeightView> weights);
  void ChooseTypes();
  PanelType TypeOf(size_t layer, bool leaves) const;
  /// Whether a layer uses oneDNN, or may, if that is measured.
  bool UsesOnednn(const Dense& dense) const;
  bool AllFloatsUseOnednn() const;
  absl::Status Pack(absl::Span<const WeightView> weights);
  void ChooseFloatProducts();

  const TowerPlan plan_;
  const TowerOptions options_;
  std::vector<Dense> dense_;                 // [layers]
  std::vector<std::vector<float>> vectors_;  // [weights], empty where not used
  HugeMemory panels_;
  int64_t fewest_onednn_rows_ = kNoOnednnRows;
};

}  // namespace processor

#endif  // PROCESSOR_KERNELS_DENSE_TOWER_H_
