// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/tower_plan.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "naive.h"

namespace processor {
namespace {

constexpr const char* kFull = R"({"version": 1, "layers": [
  {"op": "dense", "inputs": ["x0", "x1"], "weights": [0, 1], "bias": 2, "transpose": true, "precision": "bf16",
   "activation": {"kind": "leaky_relu", "alpha": 0.25}},
  {"op": "affine", "inputs": ["h0"], "scale": 3},
  {"op": "dense", "inputs": ["h1"], "weights": [4], "add": ["x1", "h0"], "activation": {"kind": "prelu", "weight": 5}},
  {"op": "layer_norm", "inputs": ["h2"], "gamma": 3, "beta": 4, "epsilon": 0.001},
  {"op": "concat", "inputs": ["h3", "x0"], "activation": {"kind": "dice", "weight": 5, "scale": 6, "shift": 7}},
  {"op": "mix", "inputs": ["h4", "h2", "h3"]},
  {"op": "add", "inputs": ["h5", "h5"]},
  {"op": "multiply", "inputs": ["h6"], "activation": {"kind": "softmax"}}],
 "outputs": ["h7", "x0"]})";

TEST(TowerPlan, ReadsEveryField) {
  TowerPlan plan;
  const absl::Status status = ParseTowerPlan(kFull, 2, 8, 2, &plan);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(plan.layers.size(), 8u);
  EXPECT_EQ(plan.layers[0].kind, LayerKind::kDense);
  EXPECT_EQ(plan.layers[0].inputs.size(), 2u);
  EXPECT_FALSE(plan.layers[0].inputs[1].is_layer);
  EXPECT_EQ(plan.layers[0].inputs[1].number, 1);
  EXPECT_EQ(plan.layers[0].weights, (std::vector<int>{0, 1}));
  EXPECT_EQ(plan.layers[0].bias, 2);
  EXPECT_TRUE(plan.layers[0].transposed);
  EXPECT_EQ(plan.layers[0].precision, LayerPrecision::kBfloat16);
  EXPECT_EQ(plan.layers[2].precision, LayerPrecision::kAny);
  EXPECT_EQ(plan.layers[0].activation.kind, ActivationKind::kLeakyRelu);
  EXPECT_EQ(plan.layers[0].activation.alpha, 0.25f);
  EXPECT_EQ(plan.layers[1].scale, 3);
  EXPECT_EQ(plan.layers[1].shift, -1);
  EXPECT_EQ(plan.layers[1].activation.kind, ActivationKind::kNone);
  EXPECT_EQ(plan.layers[2].bias, -1);
  EXPECT_TRUE(plan.layers[2].add[1].is_layer);
  EXPECT_EQ(plan.layers[2].activation.weight, 5);
  EXPECT_EQ(plan.layers[3].gamma, 3);
  EXPECT_EQ(plan.layers[3].epsilon, 0.001f);
  EXPECT_EQ(plan.layers[4].activation.shift, 7);
  EXPECT_EQ(plan.layers[5].kind, LayerKind::kMix);
  EXPECT_EQ(plan.layers[7].activation.kind, ActivationKind::kSoftmax);
  EXPECT_EQ(TowerValueName(plan.outputs[0]), "h7");
  EXPECT_EQ(TowerValueName(plan.outputs[1]), "x0");
}

struct WrongLayer {
  const char* layers;
  const char* message;
};

// Each layer stands alone, in an op with one input and three weights.
const WrongLayer kWrongLayers[] = {
    {R"({"op": "dens", "inputs": ["x0"], "weights": [0]})", "op: \"dens\" found, expected one of \"dense\""},
    {R"({"inputs": ["x0"], "weights": [0]})", "op: missing, expected one of \"dense\""},
    {R"({"op": "dense", "inputs": ["x1"], "weights": [0]})",
     "inputs[0]: \"x1\" found, expected x and a number below 1"},
    {R"({"op": "dense", "inputs": ["h0"], "weights": [0]})", "\"h0\" found"},
    {R"({"op": "dense", "inputs": ["x00"], "weights": [0]})", "\"x00\" found"},
    {R"({"op": "dense", "inputs": ["x+0"], "weights": [0]})", "\"x+0\" found"},
    {R"({"op": "dense", "inputs": [0], "weights": [0]})", "inputs[0]: 0 found"},
    {R"({"op": "dense", "inputs": "x0", "weights": [0]})", "inputs: \"x0\" found, expected a list"},
    {R"({"op": "dense", "inputs": [], "weights": []})", "no inputs, expected at least one"},
    {R"({"op": "dense", "inputs": ["x0"], "weights": [3]})", "weights[0]: 3 found, expected an integer from 0 to 2"},
    {R"({"op": "dense", "inputs": ["x0"], "weights": [-1]})", "weights[0]: -1 found"},
    {R"({"op": "dense", "inputs": ["x0"], "weights": [0.5]})", "weights[0]: 0.5 found"},
    {R"({"op": "dense", "inputs": ["x0"], "weights": [0, 1]})", "2 weights for 1 inputs, expected one each"},
    {R"({"op": "dense", "inputs": ["x0"], "weights": [0], "bias": 9})",
     "bias: 9 found, expected an integer from 0 to 2"},
    {R"({"op": "dense", "inputs": ["x0"], "weights": [0], "transpose": 1})",
     "transpose: 1 found, expected true or false"},
    {R"({"op": "dense", "inputs": ["x0"], "weights": [0], "add": ["x4"]})", "\"x4\" found"},
    {R"({"op": "dense", "inputs": ["x0"], "weights": [0], "precision": "int8"})",
     "precision: \"int8\" found, expected one of \"fp32\""},
    {R"({"op": "affine", "inputs": ["x0"], "precision": "fp32"})", "precision: unknown field"},
    {R"({"op": "dense", "inputs": ["x0"], "weights": [0], "scale": 1})", "scale: unknown field"},
    {R"({"op": "affine", "inputs": ["x0", "x0"]})", "affine of 2 inputs, expected one"},
    {R"({"op": "layer_norm", "inputs": ["x0"]})", "epsilon: nothing found"},
    {R"({"op": "layer_norm", "inputs": ["x0"], "epsilon": 0})", "epsilon: 0 found"},
    {R"({"op": "layer_norm", "inputs": ["x0"], "epsilon": 1e7})",
     "epsilon: 10000000.0 found, expected a number from 0"},
    {R"({"op": "layer_norm", "inputs": ["x0"], "epsilon": 1, "activation": {"kind": "relu"}})", "unknown field"},
    {R"({"op": "mix", "inputs": ["x0"]})", "mix of one input"},
    {R"({"op": "add", "inputs": ["x0"], "activation": "relu"})", "activation: \"relu\" found, expected an object"},
    {R"({"op": "add", "inputs": ["x0"], "activation": {"kind": "none"}})", "kind: \"none\" found"},
    {R"({"op": "add", "inputs": ["x0"], "activation": {"kind": "relu", "alpha": 1}})", "alpha: unknown field"},
    {R"({"op": "add", "inputs": ["x0"], "activation": {"kind": "leaky_relu"}})", "alpha: nothing found"},
    {R"({"op": "add", "inputs": ["x0"], "activation": {"kind": "leaky_relu", "alpha": 1e300}})", "alpha: 1e+300 found"},
    {R"({"op": "add", "inputs": ["x0"], "activation": {"kind": "prelu"}})", "weight: missing, expected an integer"},
    {R"({"op": "add", "inputs": ["x0"], "activation": {"kind": "dice", "weight": 0, "scale": 1}})",
     "shift: missing, expected an integer"},
    {R"(7)", "layers[0]: 7 found, expected an object"},
};

TEST(TowerPlan, ErrorsNameFaultOfLayer) {
  for (const WrongLayer& wrong : kWrongLayers) {
    const std::string text = std::string(R"({"version": 1, "layers": [)") + wrong.layers + R"(], "outputs": ["h0"]})";
    TowerPlan plan;
    const absl::Status status = ParseTowerPlan(text, 1, 3, 1, &plan);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_NE(status.message().find(wrong.message), std::string::npos) << status << "\nfor " << text;
    EXPECT_TRUE(plan.layers.empty());
  }
}

TEST(TowerPlan, RefusesInvalidPlans) {
  TowerPlan plan;
  for (const char* text :
       {"", "[]", "{", "null", "{}", R"({"version": 2, "layers": [], "outputs": ["x0"]})",
        R"({"version": 1, "layers": [], "outputs": []})", R"({"version": 1, "layers": [], "outputs": ["x0", "x0"]})",
        R"({"version": 1, "layers": [], "outputs": ["h0"]})", R"({"version": 1, "layers": {}, "outputs": ["x0"]})",
        R"({"version": 1, "layers": [], "outputs": ["x0"], "more": 1})"}) {
    EXPECT_EQ(ParseTowerPlan(text, 1, 1, 1, &plan).code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_FALSE(ParseTowerPlan(std::string(100000, '['), 1, 1, 1, &plan).ok());
}

TEST(TowerPlan, AcceptsPlansWithoutWeights) {
  TowerPlan plan;
  EXPECT_TRUE(ParseTowerPlan(R"({"version": 1, "layers": [{"op": "add", "inputs": ["x0"]}], "outputs": ["h0"]})", 1, 0,
                             1, &plan)
                  .ok());
  EXPECT_FALSE(
      ParseTowerPlan(R"({"version": 1, "layers": [{"op": "affine", "inputs": ["x0"], "scale": 0}], "outputs": ["h0"]})",
                     1, 0, 1, &plan)
          .ok());
}

TEST(TowerPlan, DamagedPlansAreReadOrRefused) {
  std::mt19937 random(3);
  int good = 0;
  for (int i = 0; i < 6000; ++i) {
    TowerPlan plan;
    good += ParseTowerPlan(DamagedPlan(kFull, &random), 2, 8, 2, &plan).ok();
  }
  EXPECT_GT(good, 0);
}

}  // namespace
}  // namespace processor
