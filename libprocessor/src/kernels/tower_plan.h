// SPDX-License-Identifier: Apache-2.0
// The plan of a RecDenseTower, read from JSON; docs/fused_ops.md describes the format. Plain data.
#ifndef PROCESSOR_KERNELS_TOWER_PLAN_H_
#define PROCESSOR_KERNELS_TOWER_PLAN_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "src/kernels/activation.h"

namespace processor {

/// An input of the op ("x0") or the result of an earlier layer ("h0").
struct TowerValue {
  bool is_layer = false;
  int number = 0;
};

enum class LayerKind { kDense, kAffine, kAdd, kMultiply, kConcat, kLayerNorm, kMix };

/// The least precise form that a dense layer may have, whatever the op's attribute permits.
enum class LayerPrecision { kAny, kFloat32, kBfloat16 };

/// One layer. Fields of other kinds are empty; the number of a weight is -1 if there is none.
struct TowerLayer {
  LayerKind kind = LayerKind::kDense;
  std::vector<TowerValue> inputs;
  Activation activation;
  std::vector<int> weights;  // dense: one for each input
  bool transposed = false;
  int bias = -1;
  std::vector<TowerValue> add;
  LayerPrecision precision = LayerPrecision::kAny;
  int scale = -1;  // affine
  int shift = -1;
  int gamma = -1;  // layer_norm
  int beta = -1;
  float epsilon = 0;
};

struct TowerPlan {
  std::vector<TowerLayer> layers;
  std::vector<TowerValue> outputs;
};

/// Reads the plan of an op with these numbers of inputs, weights and outputs. Checks that references are to inputs or
/// earlier layers, that weights exist, and that each layer has exactly the fields of its kind.
/// \return INVALID_ARGUMENT that names the fault, for any other text.
absl::Status ParseTowerPlan(std::string_view text, int num_inputs, int num_weights, int num_outputs, TowerPlan* plan);

/// Returns "dense", "affine", ...
const char* LayerKindName(LayerKind kind);

/// Returns "x0", "h0", ...
std::string TowerValueName(const TowerValue& value);

}  // namespace processor

#endif  // PROCESSOR_KERNELS_TOWER_PLAN_H_
