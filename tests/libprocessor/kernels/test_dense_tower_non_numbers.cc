// SPDX-License-Identifier: Apache-2.0
// NaN and infinities in a dense tower: they are treated alike in every number of rows, precision and instruction set.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "naive.h"
#include "src/kernels/dense_tower.h"
#include "tower_reference.h"

namespace processor {
namespace {

// Without int8, which has no infinities.
std::vector<TowerOptions> FloatTowerOptions() {
  std::vector<TowerOptions> all = reference::AllTowerOptions();
  all.erase(std::remove_if(all.begin(), all.end(),
                           [](const TowerOptions& options) { return options.precision == Precision::kInt8; }),
            all.end());
  return all;
}

constexpr int64_t kWidth = 16, kUnits = 37, kScores = 3;

// Two hidden layers, of which the first leaves the op as well, before anything else can hide what became of it.
std::shared_ptr<const DenseTower> MakeHiddenTower(const std::string& activation, const TowerOptions& options) {
  const std::string text = absl::StrCat(R"({"version": 1, "layers": [
    {"op": "dense", "inputs": ["x0"], "weights": [0], "bias": 1, "activation": )",
                                        activation, R"(},
    {"op": "dense", "inputs": ["h0"], "weights": [2], "bias": 1, "activation": )",
                                        activation, R"(},
    {"op": "dense", "inputs": ["h1"], "weights": [3]}], "outputs": ["h2", "h0"]})");
  static const auto* const weights = new reference::RandomWeights(
      {{kWidth, kUnits}, {kUnits}, {kUnits, kUnits}, {kUnits, kScores}, {kUnits}, {kUnits}, {kUnits}});
  std::shared_ptr<const DenseTower> tower;
  EXPECT_TRUE(reference::MakeTower(text, 1, 2, weights->views(), options, &tower).ok()) << text;
  return tower;
}

// What kind of number each element is of the scores and the hidden layer of row `row`.
std::string Kinds(const std::string& activation, const TowerOptions& options, int64_t rows, int64_t row,
                  float special) {
  std::vector<float> x(rows * kWidth, 0.25f);
  x[row * kWidth + 3] = special;
  const std::vector<TowerInput> inputs = {{x.data(), rows, kWidth}};
  std::shared_ptr<const TowerLayout> layout;
  EXPECT_TRUE(TowerLayout::Create(MakeHiddenTower(activation, options), inputs, rows, &layout).ok());
  std::vector<std::vector<float>> outputs;
  EXPECT_TRUE(reference::ComputeTower(*layout, inputs, rows, rows, 1, &outputs).ok());
  std::string kinds;
  const auto add = [&kinds](float value) {
    kinds += std::isnan(value) ? 'n' : std::isinf(value) ? (value > 0 ? '+' : '-') : '.';
  };
  for (int64_t j = 0; j < kScores; ++j) add(outputs[0][row * kScores + j]);
  for (int64_t j = 0; j < kUnits; ++j) add(outputs[1][row * kUnits + j]);
  return kinds;
}

TEST(DenseTowerNonNumbers, AreEqualForEveryNumberOfRows) {
  const std::vector<std::string> activations = {R"({"kind": "relu"})",
                                                R"({"kind": "relu", "onednn": true})",
                                                R"({"kind": "relu6"})",
                                                R"({"kind": "relu6", "onednn": true})",
                                                R"({"kind": "elu"})",
                                                R"({"kind": "leaky_relu", "alpha": 0.2})",
                                                R"({"kind": "selu"})",
                                                R"({"kind": "sigmoid"})",
                                                R"({"kind": "tanh"})",
                                                R"({"kind": "gelu"})",
                                                R"({"kind": "gelu_tanh"})",
                                                R"({"kind": "swish"})",
                                                R"({"kind": "softplus"})",
                                                R"({"kind": "softmax"})",
                                                R"({"kind": "prelu", "weight": 4})",
                                                R"({"kind": "dice", "weight": 4, "scale": 5, "shift": 6})"};
  for (const std::string& activation : activations) {
    for (float special : {kNan, kInfinity, -kInfinity}) {
      const std::string expected = Kinds(activation, {Precision::kFloat32, Isa::kPlain}, 1, 0, special);
      for (const TowerOptions& options : FloatTowerOptions()) {
        for (int64_t rows : {1, 2, 4, 5, 8, 9, 17, 64, 127}) {
          ASSERT_EQ(Kinds(activation, options, rows, rows - 1, special), expected)
              << activation << " of " << special << ", " << IsaName(options.isa) << " "
              << PrecisionName(options.precision) << (options.onednn ? " onednn, " : ", ") << rows << " rows";
        }
      }
    }
  }
}

// Where TensorFlow runs with oneDNN, it computes relu with the product before it, and a NaN becomes 0; elsewhere it
// stays one. So it is here, for layers of which the plan says that TensorFlow does so.
TEST(DenseTowerNonNumbers, ReluKeepsNanUnlessTensorFlowDoesNot) {
  for (const char* kind : {"relu", "relu6"}) {
    const std::string plain = absl::StrCat(R"({"kind": ")", kind, R"("})");
    const std::string contracted = absl::StrCat(R"({"kind": ")", kind, R"(", "onednn": true})");
    for (TowerOptions options : FloatTowerOptions()) {
      for (int64_t rows : {1, 64}) {
        const std::string nan(kScores + kUnits, 'n'), numbers(kScores + kUnits, '.');
        options.stock_onednn = true;
        EXPECT_EQ(Kinds(plain, options, rows, 0, kNan), nan);
        EXPECT_EQ(Kinds(contracted, options, rows, 0, kNan), numbers);
        options.stock_onednn = false;
        EXPECT_EQ(Kinds(contracted, options, rows, 0, kNan), nan);
      }
    }
  }
}

// As in TensorFlow, minus infinity times 0 is no number.
TEST(DenseTowerNonNumbers, SwishOfMinusInfinityIsNan) {
  for (const TowerOptions& options : FloatTowerOptions()) {
    for (const char* kind : {"swish", "gelu_tanh", "gelu"}) {
      const std::string hidden =
          Kinds(absl::StrCat(R"({"kind": ")", kind, R"("})"), options, 1, 0, -kInfinity).substr(kScores);
      EXPECT_EQ(hidden.find('-'), std::string::npos) << kind;
      EXPECT_NE(hidden.find('n'), std::string::npos) << kind;
      EXPECT_NE(hidden.find('+'), std::string::npos) << kind;
    }
  }
}

TEST(DenseTowerNonNumbers, AreNanInRowsOfInt8) {
  if (!HasInt8(ThisCpu())) GTEST_SKIP() << "the CPU has no instructions for products of int8";
  const std::string nan(kScores, 'n'), numbers(kScores, '.');
  for (float special : {kNan, kInfinity, -kInfinity}) {
    for (int64_t rows : {1, 2, 7, 8, 64, 127}) {
      const TowerOptions options{Precision::kInt8, Isa::kAvx512};
      EXPECT_EQ(Kinds(R"({"kind": "relu"})", options, rows, rows - 1, special).substr(0, kScores), nan);
      // As in fp32, where TensorFlow's relu makes a number of it.
      EXPECT_EQ(Kinds(R"({"kind": "relu", "onednn": true})", options, rows, rows - 1, special).substr(0, kScores),
                numbers);
    }
  }
}

}  // namespace
}  // namespace processor
