// SPDX-License-Identifier: Apache-2.0
// Interactions and attention against oneDNN's products with what has to be done around them, and against memory.
#include <cmath>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/floats.h"
#include "kernels/kernel_case.h"
#include "kernels/onednn_products.h"
#include "src/kernels/cross_network.h"
#include "src/kernels/dot_interaction.h"
#include "src/kernels/fm_interaction.h"
#include "src/kernels/target_attention.h"

namespace processor::bench {
namespace {

/// What a case computes with, and what its two ways give.
struct InteractionData : TwoAnswers {
  Floats x, query, all, scratch;
  std::vector<int64_t> pairs;
  std::vector<Floats> kernels, biases, states;
  OnednnProducts onednn;
};

KernelCase FmCase(int64_t rows, int64_t fields, int64_t dim) {
  auto data = std::make_shared<InteractionData>();
  data->x = Random(rows * fields * dim, 1, 1);
  data->ours.resize(rows);
  data->theirs.resize(rows);
  auto ours = [=] { FmInteraction(data->x.data(), rows, fields, dim, FmOutput::kSum, data->ours.data()); };
  // The sum over pairs, which is what the formula saves.
  auto pairs = [=] {
    for (int64_t row = 0; row < rows; ++row) {
      const float* x = data->x.data() + row * fields * dim;
      float sum = 0;
      for (int64_t i = 0; i < fields; ++i) {
        for (int64_t j = 0; j < i; ++j) {
          for (int64_t e = 0; e < dim; ++e) sum += x[i * dim + e] * x[j * dim + e];
        }
      }
      data->theirs[row] = sum;
    }
  };
  KernelCase made = CompareWays(data, {"fm", ours}, {"pairs", pairs});
  made.bytes = 4.0 * static_cast<double>(rows * fields * dim);
  return made;
}

KernelCase DotCase(int64_t rows, int64_t fields, int64_t dim) {
  auto data = std::make_shared<InteractionData>();
  data->x = Random(rows * fields * dim, 1, 1);
  data->all.resize(rows * fields * fields);
  for (int64_t i = 0; i < fields; ++i) {
    for (int64_t j = 0; j < i; ++j) data->pairs.push_back(i * fields + j);
  }
  const int64_t count = static_cast<int64_t>(data->pairs.size());
  data->ours.resize(rows * count);
  data->theirs.resize(rows * count);
  auto kernel = std::make_shared<DotPairs>(data->pairs, fields);
  data->scratch.resize(kernel->scratch(dim));
  data->onednn.Add({Rows({rows, fields, dim}), data->x.data(), Rows({rows, dim, fields}, true), data->x.data(), nullptr,
                    Rows({rows, fields, fields}), data->all.data()});
  auto ours = [=] { kernel->Rows(data->x.data(), rows, dim, data->scratch.data(), data->ours.data()); };
  auto onednn = [=] {
    data->onednn.Run();
    for (int64_t row = 0; row < rows; ++row) {
      const float* all = data->all.data() + row * fields * fields;
      for (int64_t i = 0; i < count; ++i) data->theirs[row * count + i] = all[data->pairs[i]];
    }
  };
  KernelCase made = CompareWays(data, {"dot", ours}, {"onednn", onednn});
  made.flops = static_cast<double>(rows * fields * fields * dim);
  return made;
}

KernelCase CrossCase(int64_t rows, int64_t width, int layers) {
  auto data = std::make_shared<InteractionData>();
  data->states.push_back(Random(rows * width, 1, 1));
  std::vector<const float*> kernels, biases;
  for (int i = 0; i < layers; ++i) {
    data->kernels.push_back(Random(width * width, 1 / std::sqrt(static_cast<float>(width)), 2 + i));
    data->biases.push_back(Random(width, 1, 12 + i));
    data->states.emplace_back(rows * width);
  }
  data->theirs.resize(rows * width);
  for (int i = 0; i < layers; ++i) {
    kernels.push_back(data->kernels[i].data());
    biases.push_back(data->biases[i].data());
    float* dst = i + 1 == layers ? data->theirs.data() : data->states[i + 1].data();
    data->onednn.Add({Rows({rows, width}), data->states[i].data(), Rows({width, width}), kernels[i], biases[i],
                      Rows({rows, width}), dst, dnnl::algorithm::undef, data->states[0].data(),
                      data->states[i].data()});
  }
  auto kernel = std::make_shared<CrossMatrices>(kernels, biases, width, 0, false);
  data->ours.resize(rows * width);
  data->scratch.resize(kernel->scratch());
  auto ours = [=] { kernel->Rows(data->states[0].data(), rows, data->scratch.data(), data->ours.data()); };
  auto onednn = [=] { data->onednn.Run(); };
  KernelCase made = CompareWays(data, {"cross", ours}, {"onednn", onednn});
  made.flops = 2.0 * static_cast<double>(layers * rows * width * width);
  return made;
}

KernelCase AttentionCase(int64_t rows, int64_t length, int64_t dim, const std::vector<int64_t>& units) {
  auto data = std::make_shared<InteractionData>();
  data->query = Random(rows * dim, 1, 1);
  data->x = Random(rows * length * dim, 1, 2);
  data->all.resize(rows * length * 4 * dim);
  data->ours.resize(rows * dim);
  data->theirs.resize(rows * dim);
  std::vector<AttentionLayer> layers;
  int64_t inputs = 4 * dim;
  for (int64_t size : units) {
    data->kernels.push_back(Random(inputs * size, 1 / std::sqrt(static_cast<float>(inputs)), 3));
    data->biases.push_back(Random(size, 1, 4));
    data->states.emplace_back(rows * length * size);
    inputs = size;
  }
  inputs = 4 * dim;
  for (size_t i = 0; i < units.size(); ++i) {
    AttentionLayer layer{units[i], data->kernels[i].data(), data->biases[i].data(), {}};
    const bool last = i + 1 == units.size();
    if (!last) layer.activation.kind = ActivationKind::kSigmoid;
    layers.push_back(layer);
    data->onednn.Add({Rows({rows * length, inputs}), i == 0 ? data->all.data() : data->states[i - 1].data(),
                      Rows({inputs, units[i]}), layer.kernel, layer.bias, Rows({rows * length, units[i]}),
                      data->states[i].data(), last ? dnnl::algorithm::undef : dnnl::algorithm::eltwise_logistic});
    inputs = units[i];
  }
  const std::vector<AttentionPart> parts = {AttentionPart::kQuery, AttentionPart::kKey, AttentionPart::kQueryMinusKey,
                                            AttentionPart::kProduct};
  auto unit = std::make_shared<TargetAttention>(dim, parts, layers, AttentionRule{});
  data->scratch.resize(unit->scratch(length));
  auto ours = [=] {
    unit->Rows(data->query.data(), data->x.data(), {}, 0, rows, length, data->scratch.data(), data->ours.data());
  };
  auto onednn = [=] {
    for (int64_t row = 0; row < rows * length; ++row) {
      const float *q = data->query.data() + row / length * dim, *k = data->x.data() + row * dim;
      float* part = data->all.data() + row * 4 * dim;
      for (int64_t e = 0; e < dim; ++e) part[e] = q[e];
      for (int64_t e = 0; e < dim; ++e) part[dim + e] = k[e];
      for (int64_t e = 0; e < dim; ++e) part[2 * dim + e] = q[e] - k[e];
      for (int64_t e = 0; e < dim; ++e) part[3 * dim + e] = q[e] * k[e];
    }
    data->onednn.Run();
    for (int64_t row = 0; row < rows; ++row) {
      float* dst = data->theirs.data() + row * dim;
      for (int64_t e = 0; e < dim; ++e) dst[e] = 0;
      for (int64_t t = row * length; t < (row + 1) * length; ++t) {
        for (int64_t e = 0; e < dim; ++e) dst[e] += data->states.back()[t] * data->x[t * dim + e];
      }
    }
  };
  KernelCase made = CompareWays(data, {"attention", ours}, {"onednn", onednn});
  made.flops = 2.0 * static_cast<double>(rows * length * unit->position_cost());
  return made;
}

bool RegisterInteractionCases() {
  for (int64_t rows : {1, 16, 128, 512}) {
    RegisterCase(absl::StrCat("fm/26x16/rows:", rows), [=] { return FmCase(rows, 26, 16); });
    RegisterCase(absl::StrCat("dot/27x16/rows:", rows), [=] { return DotCase(rows, 27, 16); });
    RegisterCase(absl::StrCat("dot/27x64/rows:", rows), [=] { return DotCase(rows, 27, 64); });
    RegisterCase(absl::StrCat("cross/429/rows:", rows), [=] { return CrossCase(rows, 429, 3); });
    RegisterCase(absl::StrCat("attention/20x32/80-40/rows:", rows),
                 [=] { return AttentionCase(rows, 20, 32, {80, 40, 1}); });
    RegisterCase(absl::StrCat("attention/50x64/64-16/rows:", rows),
                 [=] { return AttentionCase(rows, 50, 64, {64, 16, 1}); });
  }
  return true;
}

[[maybe_unused]] const bool interaction_registered = RegisterInteractionCases();

}  // namespace
}  // namespace processor::bench
