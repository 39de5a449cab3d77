// SPDX-License-Identifier: Apache-2.0
// Any text as the plan of a RecDenseTower or RecEmbeddingGroup: it is refused, or everything in it points at what the op
// has; a tower then computes what plain loops do, and keys are computed from values without leaving their memory.
//
// inputs_plan.cc writes the bytes before the text: which op, and what the op has.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "plan_input.h"
#include "src/kernels/dense_tower.h"
#include "src/kernels/embedding_plan.h"
#include "src/kernels/key_steps.h"
#include "tower_reference.h"

namespace processor::fuzz {
namespace {

using reference::Matrix;
using reference::RandomWeights;
using tensorflow::tstring;

void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz_plan: %s\n", what);
  std::abort();
}

void CheckTower(const PlanInput& input) {
  TowerPlan plan;
  const auto weights = static_cast<int>(input.weights.size()), inputs = static_cast<int>(input.widths.size());
  if (!ParseTowerPlan(input.text, inputs, weights, input.outputs, &plan).ok()) return;
  // Powers of a few values grow beyond what floats hold, and a difference of infinities says nothing.
  if (plan.layers.size() > 12) return;
  const RandomWeights random(input.weights);
  std::shared_ptr<const DenseTower> tower;
  const TowerOptions options{Precision::kFloat32, ThisCpu().isa, false};
  if (!DenseTower::Create(plan, random.views(), options, &tower).ok()) return;

  std::vector<std::vector<float>> numbers;
  std::vector<TowerInput> views;
  std::vector<Matrix> matrices;
  for (const int64_t width : input.widths) {
    std::vector<float> values(input.rows * width);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 37 % 19) / 19 - 0.5f;
    matrices.push_back({input.rows, width, {values.begin(), values.end()}});
    numbers.push_back(std::move(values));
    views.push_back({numbers.back().data(), input.rows, width});
  }
  std::shared_ptr<const TowerLayout> layout;
  if (!TowerLayout::Create(tower, views, input.rows, &layout).ok()) return;
  std::vector<std::vector<float>> got;
  Require(reference::ComputeTower(*layout, views, input.rows, 3, 1, &got).ok(), "a tower that was made does not run");

  const std::vector<Matrix> expected = reference::TowerReference(*tower, random.views()).Compute(matrices);
  for (int i = 0; i < input.outputs; ++i) {
    Require(expected[i].width == layout->output_width(i), "an output of another width");
    for (int64_t r = 0; r < input.rows; ++r) {
      for (int64_t j = 0; j < expected[i].width; ++j) {
        const double want = expected[i].At(r, j), found = got[i][r * expected[i].width + j];
        if (!std::isfinite(want) || std::abs(want) > 1e4) continue;
        Require(std::abs(found - want) <= 1e-3 + 1e-3 * std::abs(want), "an output of other numbers");
      }
    }
  }
}

template <typename T>
void RunSteps(const PlanKey& key, tensorflow::DataType type, const std::vector<T>& values) {
  KeySteps steps;
  if (!KeySteps::Make(key, type, &steps).ok()) return;
  std::vector<uint8_t> none(values.size());
  if (steps.gives_strings()) {
    std::vector<tstring> keys(values.size());
    steps.Strings(values.data(), values.size(), keys.data(), none.data());
  } else {
    std::vector<int64_t> keys(values.size());
    steps.Numbers(values.data(), values.size(), keys.data(), none.data());
  }
}

void CheckGroup(const PlanInput& input) {
  constexpr int kTables = 3;
  const auto features = static_cast<int>(input.widths.size());
  EmbeddingPlan plan;
  if (!ParseEmbeddingPlan(input.text, features, kTables, input.outputs, &plan).ok()) return;
  const auto is = [](int number, int count) { return number >= 0 && number < count; };
  const auto keys = static_cast<int>(plan.keys.size());
  Require(static_cast<int>(plan.outputs.size()) == input.outputs, "a plan of other outputs");
  for (const PlanOutput& output : plan.outputs) {
    Require(output.width >= 0 && output.sequence < keys, "an output of what is not there");
    Require(output.initial.empty() || static_cast<int64_t>(output.initial.size()) == output.width, "a wrong start");
  }
  for (const PlanColumn& column : plan.columns) {
    Require(is(column.output, input.outputs) && column.offset >= 0, "a column in no output");
    if (column.kind == ColumnKind::kLookup) {
      Require(is(column.key, keys) && is(column.table, kTables) && column.weights < features, "a lookup in nothing");
      for (const PlanFactor& factor : column.factors) {
        Require(is(factor.key, keys) && is(factor.table, kTables), "a factor of nothing");
      }
    } else {
      Require(is(column.feature, features), "a column of no feature");
    }
  }
  for (const PlanKey& key : plan.keys) {
    Require(is(key.feature, features) && key.structure < features && key.extent < features, "a key of no feature");
    RunSteps<int64_t>(key, tensorflow::DT_INT64, {0, 1, -1, 40, INT64_MAX, INT64_MIN, 7});
    RunSteps<int32_t>(key, tensorflow::DT_INT32, {0, 1, -1, INT32_MAX, INT32_MIN});
    RunSteps<float>(key, tensorflow::DT_FLOAT, {0, 1.5f, -1, INFINITY, NAN});
    RunSteps<tstring>(key, tensorflow::DT_STRING, {"", "a", "some words that are longer than a small string", "7"});
  }
}

}  // namespace
}  // namespace processor::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  processor::fuzz::PlanInput input;
  if (!processor::fuzz::ReadPlanInput(data, size, &input)) return 0;
  if (input.is_tower) {
    processor::fuzz::CheckTower(input);
  } else {
    processor::fuzz::CheckGroup(input);
  }
  return 0;
}
