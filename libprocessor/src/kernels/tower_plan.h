// SPDX-License-Identifier: Apache-2.0
// What a RecDenseTower computes, read from its plan. The format is in docs/fused_ops.md.
#ifndef PROCESSOR_KERNELS_TOWER_PLAN_H_
#define PROCESSOR_KERNELS_TOWER_PLAN_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "src/kernels/activation.h"

namespace processor {

/// An input of the op ("x0") or what an earlier layer computes ("h0").
struct TowerValue {
  bool is_layer = false;
  int number = 0;
};

enum class LayerKind { kDense, kAffine, kAdd, kMultiply, kConcat, kLayerNorm, kMix };

/// Fields of other kinds are empty; numbers of weights are -1 where there is none.
struct TowerLayer {
  LayerKind kind = LayerKind::kDense;
  std::vector<TowerValue> inputs;
  Activation activation;
  std::vector<int> weights;  // dense: one for each input
  bool transposed = false;
  int bias = -1;
  std::vector<TowerValue> add;
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

/// Reads the plan of an op with these numbers of inputs, weights and outputs. Every reference is to an input or an
/// earlier layer, every number that of a weight, every layer has what its kind needs and nothing else.
/// \return INVALID_ARGUMENT, naming what is wrong, for any other text.
absl::Status ParseTowerPlan(std::string_view text, int num_inputs, int num_weights, int num_outputs, TowerPlan* plan);

/// "dense", "affine", ...
const char* LayerKindName(LayerKind kind);

/// "x0" or "h0".
std::string TowerValueName(const TowerValue& value);

}  // namespace processor

#endif  // PROCESSOR_KERNELS_TOWER_PLAN_H_
