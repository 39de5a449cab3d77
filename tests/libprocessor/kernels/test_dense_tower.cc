// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/dense_tower.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tower_reference.h"

namespace processor {
namespace {

using reference::AllTowerOptions;
using reference::ComputeTower;
using reference::Matrix;
using reference::RandomWeights;
using reference::TowerReference;

using Shapes = std::vector<std::vector<int64_t>>;

std::string Show(const TowerOptions& options) {
  return absl::StrCat(IsaName(options.isa), " ", PrecisionName(options.precision), options.onednn ? " onednn" : "");
}

struct Tower {
  std::string layers;
  std::string outputs;
  Shapes weights;
  std::vector<int64_t> input_widths;
  int num_outputs = 1;

  absl::Status Make(const TowerOptions& options, const RandomWeights& random,
                    std::shared_ptr<const DenseTower>* tower) const {
    const std::string text = absl::StrCat(R"({"version": 1, "layers": [)", layers, R"(], "outputs": [)", outputs, "]}");
    return reference::MakeTower(text, input_widths.size(), num_outputs, random.views(), options, tower);
  }
};

// The rows that oneDNN reads and writes must have no gaps between them; see OnednnMatmul::IsReference().
void CheckNoGapsForOnednn(const TowerLayout& layout) {
  const TowerPlan& plan = layout.tower().plan();
  for (size_t i = 0; layout.tower().fewest_onednn_rows() != kNoOnednnRows && i < plan.layers.size(); ++i) {
    const TowerLayerPlace& place = layout.layer(i);
    if (!place.single && place.offset >= 0) {
      EXPECT_EQ(place.stride, place.width);
    }
  }
  for (size_t i = 0; layout.half_sources() && i < plan.layers.size(); ++i) {
    const TowerLayerPlace& place = layout.layer(i);
    if (layout.tower().dense(i).type != PanelType::kBfloat16 || place.single) continue;
    for (const TowerValue& value : plan.layers[i].inputs) {
      if (!layout.place(value).single) {
        EXPECT_EQ(layout.place(value).half_stride, layout.place(value).width);
      }
    }
    EXPECT_EQ(place.offset < 0 ? place.half_stride : place.stride, place.width);
  }
}

// Runs a tower in `parts` calls, with one row for the inputs in `singles`, and compares all outputs.
void CheckTower(const Tower& spec, const TowerOptions& options, int64_t rows, const std::vector<size_t>& singles = {},
                int parts = 1) {
  SCOPED_TRACE(absl::StrCat(Show(options), ", ", rows, " rows, ", singles.size(), " single inputs, ", parts, " parts"));
  const RandomWeights random(spec.weights);
  std::shared_ptr<const DenseTower> tower;
  const absl::Status made = spec.Make(options, random, &tower);
  ASSERT_TRUE(made.ok()) << made;

  std::mt19937 generator(5);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<std::vector<float>> numbers;
  std::vector<TowerInput> inputs;
  std::vector<Matrix> matrices;
  for (size_t i = 0; i < spec.input_widths.size(); ++i) {
    const bool single = std::find(singles.begin(), singles.end(), i) != singles.end();
    const int64_t input_rows = single ? 1 : rows;
    std::vector<float> values(input_rows * spec.input_widths[i]);
    for (float& value : values) value = uniform(generator);
    matrices.push_back({input_rows, spec.input_widths[i], {values.begin(), values.end()}});
    numbers.push_back(std::move(values));
    inputs.push_back({numbers.back().data(), input_rows, spec.input_widths[i]});
  }

  std::shared_ptr<const TowerLayout> layout;
  const absl::Status laid_out = TowerLayout::Create(tower, inputs, rows, &layout);
  ASSERT_TRUE(laid_out.ok()) << laid_out;
  EXPECT_TRUE(layout->Fits(inputs, rows));
  EXPECT_TRUE(TowerRun::PrepareKernels(*layout).ok());
  CheckNoGapsForOnednn(*layout);
  std::vector<std::vector<float>> got;
  const absl::Status ran = ComputeTower(*layout, inputs, rows, 40, parts, &got);
  ASSERT_TRUE(ran.ok()) << ran;

  const std::vector<Matrix> expected = TowerReference(*tower, random.views()).Compute(matrices);
  // Rounding activations magnifies what sums differ by: bfloat16 and bytes have 8 bits.
  const double tolerance = tower->rounds_activations() || options.precision == Precision::kInt8 ? 2e-2 : 1e-5;
  for (int i = 0; i < spec.num_outputs; ++i) {
    ASSERT_EQ(expected[i].width, layout->output_width(i));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t j = 0; j < expected[i].width; ++j) {
        const double want = expected[i].At(r, j);
        ASSERT_NEAR(got[i][r * expected[i].width + j], want, tolerance + tolerance * std::fabs(want))
            << "output " << i << " at " << r << ", " << j;
      }
    }
  }
}

Tower Chain(const std::vector<int64_t>& widths, const std::string& activation) {
  Tower tower;
  tower.input_widths = {widths[0]};
  for (size_t i = 0; i + 1 < widths.size(); ++i) {
    const std::string source = i == 0 ? "x0" : absl::StrCat("h", i - 1);
    absl::StrAppend(&tower.layers, i == 0 ? "" : ", ", R"({"op": "dense", "inputs": [")", source, R"("], "weights": [)",
                    2 * i, R"(], "bias": )", 2 * i + 1, i + 2 == widths.size() ? "" : activation, "}");
    tower.weights.push_back({widths[i], widths[i + 1]});
    tower.weights.push_back({widths[i + 1]});
  }
  tower.outputs = absl::StrCat("\"h", widths.size() - 2, "\"");
  return tower;
}

const std::string kRelu = R"(, "activation": {"kind": "relu"})";

TEST(DenseTower, ChainsEqualTheReference) {
  for (const TowerOptions& options : AllTowerOptions()) {
    const Tower tower = Chain({45, 130, 64, 17, 1}, kRelu);
    for (int64_t rows : {0, 1, 2, 3, 4, 5, 7, 8, 9, 16, 31, 64, 127, 128, 129}) CheckTower(tower, options, rows);
    CheckTower(tower, options, 129, {}, 3);
  }
}

TEST(DenseTower, AcceptsAllWidths) {
  for (const TowerOptions& options : AllTowerOptions()) {
    for (int64_t k : {1, 2, 3, 13, 16, 17, 64, 129, 429}) {
      for (int64_t n : {1, 2, 3, 13, 16, 17, 64, 129}) {
        CheckTower(Chain({k, n, 3}, kRelu), options, k % 2 == 0 ? 3 : 9);
      }
    }
    CheckTower(Chain({17, 429, 429, 2}, kRelu), options, 11);
  }
}

TEST(DenseTower, AppliesEveryActivation) {
  const std::vector<std::string> kinds = {R"("relu")",
                                          R"("relu6")",
                                          R"("leaky_relu", "alpha": 0.2)",
                                          R"("elu")",
                                          R"("selu")",
                                          R"("sigmoid")",
                                          R"("tanh")",
                                          R"("gelu")",
                                          R"("gelu_tanh")",
                                          R"("swish")",
                                          R"("softplus")",
                                          R"("softmax")",
                                          R"("prelu", "weight": 4)",
                                          R"("prelu", "weight": 7)",
                                          R"("dice", "weight": 4, "scale": 5, "shift": 6)"};
  for (const TowerOptions& options : AllTowerOptions()) {
    for (const std::string& kind : kinds) {
      Tower tower = Chain({20, 37, 3}, absl::StrCat(R"(, "activation": {"kind": )", kind, "}"));
      for (int64_t length : {37, 37, 37, 1}) tower.weights.push_back({length});
      SCOPED_TRACE(kind);
      for (int64_t rows : {1, 3, 17}) CheckTower(tower, options, rows);
    }
  }
}

// Every kind of layer, with values that live long and values that leave in the middle.
Tower Everything() {
  Tower tower;
  tower.input_widths = {12, 5, 24};
  tower.weights = {{12, 24}, {5, 24}, {24}, {24}, {1}, {24, 24}, {24, 2}, {24}, {24}, {24, 40}, {89, 7}};
  tower.layers = R"(
    {"op": "dense", "inputs": ["x0", "x1"], "weights": [0, 1], "bias": 2, "add": ["x2"], "activation": {"kind": "relu"}},
    {"op": "affine", "inputs": ["x2"], "scale": 3, "shift": 4, "activation": {"kind": "tanh"}},
    {"op": "dense", "inputs": ["h0"], "weights": [5], "add": ["h0", "h1"], "transpose": true,
     "activation": {"kind": "sigmoid"}},
    {"op": "dense", "inputs": ["h2"], "weights": [6], "activation": {"kind": "softmax"}},
    {"op": "mix", "inputs": ["h3", "h0", "h1"], "activation": {"kind": "swish"}},
    {"op": "layer_norm", "inputs": ["h4"], "gamma": 7, "beta": 8, "epsilon": 0.01},
    {"op": "multiply", "inputs": ["h5", "h1", "x2"]},
    {"op": "dense", "inputs": ["h6"], "weights": [9], "activation": {"kind": "gelu"}},
    {"op": "add", "inputs": ["h6", "h2", "h2"], "activation": {"kind": "relu6"}},
    {"op": "concat", "inputs": ["h7", "h8", "x1"], "activation": {"kind": "leaky_relu", "alpha": 0.3}},
    {"op": "concat", "inputs": ["h9", "h0"]},
    {"op": "affine", "inputs": ["h9"]},
    {"op": "concat", "inputs": ["h11", "x0", "x1"]},
    {"op": "affine", "inputs": ["h12"], "scale": 4},
    {"op": "layer_norm", "inputs": ["x1"], "epsilon": 0.1})";
  tower.outputs = R"("h10", "h3", "x2", "h3", "h14", "h13")";
  tower.num_outputs = 6;
  tower.weights.pop_back();
  return tower;
}

TEST(DenseTower, ComputesEveryKindOfLayer) {
  for (const TowerOptions& options : AllTowerOptions()) {
    for (int64_t rows : {0, 1, 2, 5, 8, 33, 129}) CheckTower(Everything(), options, rows);
  }
}

TEST(DenseTower, BroadcastsInputsOfOneRow) {
  for (const TowerOptions& options : AllTowerOptions()) {
    for (int64_t rows : {2, 3, 9, 50}) {
      for (const std::vector<size_t>& singles :
           std::vector<std::vector<size_t>>{{0}, {1}, {2}, {0, 1}, {0, 2}, {1, 2}}) {
        CheckTower(Everything(), options, rows, singles, rows == 50 ? 2 : 1);
      }
    }
  }
}

// A score must not depend on how many rows came with it.
TEST(DenseTower, RowsHaveEqualScoresInABatchAndAlone) {
  const Tower spec = Chain({45, 130, 64, 1}, kRelu);
  const RandomWeights random(spec.weights);
  for (const TowerOptions& options : AllTowerOptions()) {
    std::shared_ptr<const DenseTower> tower;
    ASSERT_TRUE(spec.Make(options, random, &tower).ok());
    std::vector<float> x(60 * 45);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(static_cast<int>(i * 7919 % 201) - 100) / 100;
    const auto score = [&](int64_t first, int64_t rows) {
      const std::vector<TowerInput> inputs = {{x.data() + first * 45, rows, 45}};
      std::shared_ptr<const TowerLayout> layout;
      EXPECT_TRUE(TowerLayout::Create(tower, inputs, rows, &layout).ok());
      std::vector<std::vector<float>> scores;
      EXPECT_TRUE(ComputeTower(*layout, inputs, rows, rows, 1, &scores).ok());
      return scores[0];
    };
    const std::vector<float> all = score(0, 60);
    const double tolerance = tower->rounds_activations() ? 4e-3 : 2e-6;
    for (int64_t r = 0; r < 60; ++r) {
      ASSERT_NEAR(score(r, 1)[0], all[r], tolerance) << Show(options) << ", row " << r;
    }
  }
}

TEST(DenseTower, LastLayersStayFloat) {
  const RandomWeights random(Everything().weights);
  std::shared_ptr<const DenseTower> tower;
  ASSERT_TRUE(Everything().Make({Precision::kBfloat16Weights, ThisCpu().isa}, random, &tower).ok());
  // h3 is an output, h7, h2 and h0 reach one without passing another dense layer.
  for (size_t layer : {0, 2, 3, 7}) EXPECT_EQ(tower->dense(layer).type, PanelType::kFloat32) << layer;
  const Tower chain = Chain({4, 5, 6, 1}, kRelu);
  ASSERT_TRUE(chain.Make({Precision::kBfloat16Weights, ThisCpu().isa}, RandomWeights(chain.weights), &tower).ok());
  EXPECT_EQ(tower->dense(0).type, PanelType::kBfloat16);
  EXPECT_EQ(tower->dense(1).type, PanelType::kBfloat16);
  EXPECT_EQ(tower->dense(2).type, PanelType::kFloat32);
}

std::vector<PanelType> Types(const Tower& spec, const TowerOptions& options) {
  std::shared_ptr<const DenseTower> tower;
  EXPECT_TRUE(spec.Make(options, RandomWeights(spec.weights), &tower).ok());
  std::vector<PanelType> types;
  for (size_t i = 0; i < tower->plan().layers.size(); ++i) types.push_back(tower->dense(i).type);
  return types;
}

Tower ChainWithPrecisions(const std::vector<int64_t>& widths, const std::vector<std::string>& precisions) {
  Tower tower = Chain(widths, kRelu);
  std::string layers;
  size_t begin = 0;
  for (const std::string& precision : precisions) {
    const size_t end = tower.layers.find("\"bias\"", begin);
    absl::StrAppend(&layers, tower.layers.substr(begin, end - begin),
                    precision.empty() ? "" : absl::StrCat(R"("precision": ")", precision, R"(", )"));
    begin = tower.layers.find("}", end);
    layers += tower.layers.substr(end, begin - end);
  }
  tower.layers = layers + tower.layers.substr(begin);
  return tower;
}

TEST(DenseTower, ThePrecisionOfALayerIsTheLeastOneOfOpAndPlan) {
  const Tower tower = ChainWithPrecisions({4, 5, 6, 7, 1}, {"", "bf16", "fp32", "bf16"});
  constexpr PanelType kFloat = PanelType::kFloat32, kHalf = PanelType::kBfloat16, kInt8 = PanelType::kInt8;
  const Isa isa = ThisCpu().isa;
  EXPECT_EQ(Types(tower, {Precision::kInt8, isa}), (std::vector<PanelType>{kInt8, kHalf, kFloat, kFloat}));
  EXPECT_EQ(Types(tower, {Precision::kBfloat16Weights, isa}), (std::vector<PanelType>{kHalf, kHalf, kFloat, kFloat}));
  EXPECT_EQ(Types(tower, {Precision::kFloat32, isa}), (std::vector<PanelType>{kFloat, kFloat, kFloat, kFloat}));
}

TEST(DenseTower, LayersWhoseSumsOfInt8CouldOverflowAreBfloat16) {
  for (int64_t k : {kMostInt8Terms, kMostInt8Terms + 1}) {
    EXPECT_EQ(Types(Chain({k, 2, 1}, kRelu), {Precision::kInt8, ThisCpu().isa})[0],
              k == kMostInt8Terms ? PanelType::kInt8 : PanelType::kBfloat16);
  }
}

TEST(DenseTower, LayersOfAllPrecisionsEqualTheReferenceSideBySide) {
  if (!HasInt8(ThisCpu())) GTEST_SKIP() << "the CPU has no instructions for products of int8";
  for (Precision half : {Precision::kBfloat16Weights, Precision::kBfloat16}) {
    TowerOptions options{Precision::kInt8, Isa::kAvx512, half == Precision::kBfloat16};
    options.beside_int8 = half;
    for (int64_t rows : {1, 2, 5, 9, 128}) {
      CheckTower(ChainWithPrecisions({45, 130, 64, 48, 17, 1}, {"", "bf16", "", "fp32", ""}), options, rows);
      CheckTower(ChainWithPrecisions({45, 130, 64, 48, 17, 1}, {"bf16", "", "bf16", "bf16", ""}), options, rows);
    }
  }
}

void ExpectRefused(const Tower& spec, const std::string& message) {
  const RandomWeights random(spec.weights);
  std::shared_ptr<const DenseTower> tower;
  absl::Status status = spec.Make({}, random, &tower);
  if (status.ok()) {
    std::vector<TowerInput> inputs;
    for (int64_t width : spec.input_widths) inputs.push_back({nullptr, 3, width});
    std::shared_ptr<const TowerLayout> layout;
    status = TowerLayout::Create(tower, inputs, 3, &layout);
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message;
  EXPECT_NE(status.message().find(message), std::string::npos) << status;
}

TEST(DenseTower, RefusesShapesThatDoNotFit) {
  const std::string dense = R"({"op": "dense", "inputs": ["x0", "x1"], "weights": [0, 1], "bias": 2})";
  const auto tower = [&](const std::string& layers, const Shapes& weights, const std::vector<int64_t>& widths) {
    Tower made;
    made.layers = layers;
    made.outputs = "\"h0\"";
    made.weights = weights;
    made.input_widths = widths;
    return made;
  };
  ExpectRefused(tower(dense, {{4, 8}, {5, 8}, {7}}, {4, 5}),
                "layer 0 (dense): weight 2 has shape [7], expected the bias [8]");
  ExpectRefused(tower(dense, {{4, 8}, {5, 9}, {8}}, {4, 5}), "weight 1 has shape [5, 9], expected [k, units] with 8");
  ExpectRefused(tower(dense, {{4, 8, 1}, {5, 8}, {8}}, {4, 5}), "weight 0 has shape [4, 8, 1], expected [k, units]");
  ExpectRefused(tower(dense, {{0, 8}, {5, 8}, {8}}, {4, 5}), "weight 0 has shape [0, 8]");
  ExpectRefused(tower(dense, {{4, 8}, {5, 8}, {8}}, {4, 6}),
                "layer 0 (dense): input 1: 6 columns, expected 5, as weight 1 has");
  ExpectRefused(tower(dense, {{4, 8}, {5, 8}, {8}}, {0, 5}), "input 0: no columns");
  const std::string add = R"({"op": "add", "inputs": ["x0", "x1"]})";
  ExpectRefused(tower(add, {}, {4, 5}), "layer 0 (add): input 1: 5 columns, expected 4");
  const std::string affine = R"({"op": "affine", "inputs": ["x0"], "scale": 0})";
  ExpectRefused(tower(affine, {{3}}, {4}), "layer 0 (affine): weight 0 has 3 elements, expected 4 or 1");
  ExpectRefused(tower(affine, {{4, 1}}, {4}), "weight 0 has shape [4, 1], expected scale [k] or [1]");
  const std::string prelu = R"({"op": "add", "inputs": ["x0"], "activation": {"kind": "prelu", "weight": 0}})";
  ExpectRefused(tower(prelu, {{3}}, {4}), "weight 0 has 3 elements, expected 4 or 1");
  const std::string mix = R"({"op": "mix", "inputs": ["x0", "x1", "x1"]})";
  ExpectRefused(tower(mix, {}, {3, 5}), "layer 0 (mix): input 0: 3 columns, expected 2, one for each of the others");
  const std::string wide_add = R"({"op": "dense", "inputs": ["x0"], "weights": [0], "add": ["x1"]})";
  ExpectRefused(tower(wide_add, {{4, 8}}, {4, 7}), "input 1: 7 columns, expected 8, as the layer has units");
}

TEST(DenseTower, ChoosesPrecisionByTheCpu) {
  CpuFeatures plain, avx2, avx512, amd, amx;
  avx2.isa = Isa::kAvx2;
  avx512.isa = amd.isa = amx.isa = Isa::kAvx512;
  avx512.avx512_bf16 = amd.avx512_bf16 = amx.avx512_bf16 = true;
  amd.amd = true;
  amx.amx_bf16 = true;
  amd.avx512_vnni = true;
  Precision precision;
  EXPECT_EQ(ChoosePrecision("bf16", plain, &precision).code(), absl::StatusCode::kFailedPrecondition);
  for (const CpuFeatures& cpu : {plain, avx2, avx512}) {
    const absl::Status status = ChoosePrecision("int8", cpu, &precision);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_NE(status.message().find("AVX512_VNNI"), std::string::npos) << status;
  }
  EXPECT_EQ(ChoosePrecision("half", plain, &precision).code(), absl::StatusCode::kInvalidArgument);
  const std::vector<std::tuple<const char*, CpuFeatures, Precision>> choices = {
      {"auto", plain, Precision::kFloat32},
      {"bf16", avx2, Precision::kBfloat16Weights},
      {"bf16", avx512, Precision::kBfloat16Weights},
      {"bf16", amd, Precision::kBfloat16},
      {"bf16", amx, Precision::kBfloat16},
      {"bf16_weights", amx, Precision::kBfloat16Weights},
      {"int8", amd, Precision::kInt8},
      {"fp32", amx, Precision::kFloat32}};
  for (const auto& [wanted, cpu, expected] : choices) {
    EXPECT_TRUE(ChoosePrecision(wanted, cpu, &precision).ok()) << wanted;
    EXPECT_EQ(precision, expected) << wanted;
  }
}

}  // namespace
}  // namespace processor
