// SPDX-License-Identifier: Apache-2.0
// A dense tower against oneDNN's products alone: the same layers, weights in oneDNN's form, scratch of its own, bias and
// relu as post-ops, nothing else. bfloat16 is compared with what serves fp32 elsewhere, int8 with what serves bfloat16 and
// with oneDNN's int8.
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/kernel_case.h"
#include "kernels/onednn_int8.h"
#include "kernels/onednn_products.h"
#include "src/kernels/dense_tower.h"
#include "src/kernels/tower_layout.h"
#include "src/kernels/tower_run.h"

namespace processor::bench {
namespace {

using Widths = std::vector<int64_t>;

// Random numbers: pages that were never written are all one page of zeros, and cost no memory to read.
HugeMemory RandomMemory(int64_t floats, float scale, unsigned seed) {
  HugeMemory numbers(static_cast<size_t>(floats) * sizeof(float));
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(-scale, scale);
  float* data = reinterpret_cast<float*>(numbers.data());
  for (int64_t i = 0; i < floats; ++i) data[i] = uniform(generator);
  return numbers;
}

float* Floats(const HugeMemory& numbers) { return reinterpret_cast<float*>(numbers.data()); }

// Dense layers with relu, the last without.
struct Layers {
  Layers(const Widths& layer_widths, int64_t batch) : widths(layer_widths), rows(batch) {
    for (size_t i = 0; i + 1 < widths.size(); ++i) {
      const float scale = 1.5f / std::sqrt(static_cast<float>(widths[i]));
      weights.push_back(RandomMemory(widths[i] * widths[i + 1], scale, 1));
      biases.push_back(RandomMemory(widths[i + 1], 0.5f, 2));
      hidden.emplace_back(static_cast<size_t>(rows * widths[i + 1]) * sizeof(float));
    }
    x = RandomMemory(rows * widths[0], 1, 3);
    ours = RandomMemory(rows * widths.back(), 1, 4);
    theirs = RandomMemory(rows * widths.back(), 1, 5);
  }

  double Flops() const {
    double flops = 0;
    for (size_t i = 0; i + 1 < widths.size(); ++i) flops += 2.0 * static_cast<double>(widths[i] * widths[i + 1] * rows);
    return flops;
  }

  const Widths widths;
  const int64_t rows;
  std::vector<HugeMemory> weights, biases, hidden;
  HugeMemory x, ours, theirs;
};

class Ours {
 public:
  Ours(const Layers& layers, const TowerOptions& options) {
    std::vector<std::string> texts;
    std::vector<WeightView> views;
    const size_t count = layers.weights.size();
    for (size_t i = 0; i < count; ++i) {
      texts.push_back(absl::StrCat(R"({"op": "dense", "inputs": [")", i == 0 ? "x0" : absl::StrCat("h", i - 1),
                                   R"("], "weights": [)", 2 * i, R"(], "bias": )", 2 * i + 1,
                                   i + 1 == count ? "}" : R"(, "activation": {"kind": "relu"}})"));
      views.push_back({Floats(layers.weights[i]), {layers.widths[i], layers.widths[i + 1]}});
      views.push_back({Floats(layers.biases[i]), {layers.widths[i + 1]}});
    }
    const std::string text = absl::StrCat(R"({"version": 1, "layers": [)", absl::StrJoin(texts, ", "),
                                          R"(], "outputs": ["h)", count - 1, "\"]}");
    TowerPlan plan;
    std::shared_ptr<const DenseTower> tower;
    input_ = {Floats(layers.x), layers.rows, layers.widths[0]};
    output_ = Floats(layers.ours);
    if (!ParseTowerPlan(text, 1, static_cast<int>(views.size()), 1, &plan).ok() ||
        !DenseTower::Create(plan, views, options, &tower).ok() ||
        !TowerLayout::Create(tower, absl::MakeConstSpan(&input_, 1), layers.rows, &layout_).ok()) {
      throw std::runtime_error("the tower cannot be made");
    }
    single_ = HugeMemory(layout_->single_floats() * sizeof(float));
    scratch_ = HugeMemory(layout_->block_floats(layout_->block_rows()) * sizeof(float));
  }

  void Run() const {
    const TowerRun run(*layout_, absl::MakeConstSpan(&input_, 1), absl::MakeConstSpan(&output_, 1), Floats(single_));
    if (!run.ComputeSingles().ok() || !run.ComputeRows(0, input_.rows, layout_->block_rows(), Floats(scratch_)).ok()) {
      throw std::runtime_error("the tower cannot be computed");
    }
  }

 private:
  TowerInput input_;
  float* output_ = nullptr;
  std::shared_ptr<const TowerLayout> layout_;
  HugeMemory single_, scratch_;
};

OnednnProducts MakeProducts(const Layers& layers) {
  const size_t count = layers.weights.size();
  OnednnProducts products;
  const float* src = Floats(layers.x);
  for (size_t i = 0; i < count; ++i) {
    const int64_t k = layers.widths[i], n = layers.widths[i + 1];
    const bool last = i + 1 == count;
    float* dst = last ? Floats(layers.theirs) : Floats(layers.hidden[i]);
    products.Add({Rows({layers.rows, k}), src, Rows({k, n}), Floats(layers.weights[i]), Floats(layers.biases[i]),
                  Rows({layers.rows, n}), dst, last ? dnnl::algorithm::undef : dnnl::algorithm::eltwise_relu});
    src = dst;
  }
  return products;
}

KernelCase MakeTowerCase(const Widths& widths, int64_t rows, const TowerOptions& options) {
  const auto layers = std::make_shared<Layers>(widths, rows);
  const auto ours = std::make_shared<Ours>(*layers, options);
  const auto bare = std::make_shared<OnednnProducts>(MakeProducts(*layers));
  KernelCase made;
  made.flops = layers->Flops();
  made.ways = {{"tower", [layers, ours] { ours->Run(); }}, {"onednn_fp32", [layers, bare] { bare->Run(); }}};
  made.check = [layers, ours, bare, options]() -> std::string {
    ours->Run();
    bare->Run();
    const double tolerance = options.precision == Precision::kFloat32 ? 1e-5 : 3e-2;
    for (int64_t i = 0; i < layers->rows * layers->widths.back(); ++i) {
      const double a = Floats(layers->ours)[i], b = Floats(layers->theirs)[i];
      if (!(std::fabs(a - b) <= tolerance + tolerance * std::fabs(b))) return absl::StrCat(a, " for ", b, " at ", i);
    }
    return "";
  };
  return made;
}

std::shared_ptr<OnednnInt8> MakeInt8Products(const Layers& layers, OnednnProducts* floats) {
  floats->Run();
  auto products = std::make_shared<OnednnInt8>(layers.rows);
  products->SetInput(Floats(layers.x), layers.widths[0]);
  for (size_t i = 0; i < layers.weights.size(); ++i) {
    const float *weights = Floats(layers.weights[i]), *bias = Floats(layers.biases[i]);
    const int64_t k = layers.widths[i], n = layers.widths[i + 1];
    if (i + 1 == layers.weights.size()) {
      products->AddLast(weights, bias, k, n, Floats(layers.theirs));
    } else {
      products->AddHidden(weights, bias, k, n, Floats(layers.hidden[i]));
    }
  }
  return products;
}

KernelCase MakeInt8Case(const Widths& widths, int64_t rows, Precision served) {
  const auto layers = std::make_shared<Layers>(widths, rows);
  const auto ours = std::make_shared<Ours>(*layers, TowerOptions::For(Precision::kInt8, ThisCpu()));
  const auto half = std::make_shared<Ours>(*layers, TowerOptions::For(served, ThisCpu()));
  const auto floats = std::make_shared<OnednnProducts>(MakeProducts(*layers));
  const auto bare = MakeInt8Products(*layers, floats.get());
  KernelCase made;
  made.flops = layers->Flops();
  made.ways = {{"tower", [layers, ours] { ours->Run(); }},
               {"tower_bf16", [layers, half] { half->Run(); }},
               {"onednn_int8", [layers, bare] { bare->Run(); }}};
  made.check = [layers, ours, floats, bare]() -> std::string {
    floats->Run();
    const int64_t count = layers->rows * layers->widths.back();
    const std::vector<float> expected(Floats(layers->theirs), Floats(layers->theirs) + count);
    ours->Run();
    bare->Run();
    for (int64_t i = 0; i < count; ++i) {
      for (const float found : {Floats(layers->ours)[i], Floats(layers->theirs)[i]}) {
        if (!(std::fabs(found - expected[i]) <= 0.1 + 0.1 * std::fabs(expected[i]))) {
          return absl::StrCat(found, " for ", expected[i], " at ", i);
        }
      }
    }
    return "";
  };
  return made;
}

bool RegisterTowerCases() {
  const Precision half = ThisCpu().isa == Isa::kPlain ? Precision::kFloat32 : Precision::kBfloat16Weights;
  Precision chosen = Precision::kFloat32;
  const Precision served = ChoosePrecision("bf16", ThisCpu(), &chosen).ok() ? chosen : half;
  const Widths wide_and_deep = {429, 1024, 512, 256, 1}, small = {117, 200, 80, 1}, large = {2048, 4096, 1024, 1};
  for (const Widths& widths : {wide_and_deep, small, large}) {
    for (Precision precision : {Precision::kFloat32, served}) {
      for (int64_t rows : {1, 2, 4, 8, 16, 32, 64, 128, 200, 512}) {
        const TowerOptions options = TowerOptions::For(precision, ThisCpu());
        RegisterCase(absl::StrCat("tower/", absl::StrJoin(widths, "-"), "/",
                                  precision == Precision::kFloat32 ? "fp32" : "bf16", "/rows:", rows),
                     [=] { return MakeTowerCase(widths, rows, options); });
      }
    }
    if (!HasInt8(ThisCpu())) continue;
    for (int64_t rows : {1, 2, 4, 8, 16, 32, 64, 128, 512}) {
      RegisterCase(absl::StrCat("tower/", absl::StrJoin(widths, "-"), "/int8/rows:", rows),
                   [=] { return MakeInt8Case(widths, rows, served); });
    }
  }
  // What a CPU without AVX-512 would compute with; to be compared with ONEDNN_MAX_CPU_ISA=AVX2.
  if (ThisCpu().isa == Isa::kAvx512) {
    for (Precision precision : {Precision::kFloat32, half}) {
      for (int64_t rows : {1, 4, 16, 128}) {
        RegisterCase(absl::StrCat("tower_avx2/", absl::StrJoin(wide_and_deep, "-"), "/",
                                  precision == Precision::kFloat32 ? "fp32" : "bf16", "/rows:", rows),
                     [=] { return MakeTowerCase(wide_and_deep, rows, {precision, Isa::kAvx2}); });
      }
    }
  }
  return true;
}

const bool tower_registered = RegisterTowerCases();

}  // namespace
}  // namespace processor::bench
