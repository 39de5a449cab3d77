// SPDX-License-Identifier: Apache-2.0
// Interactions and attention against oneDNN's products with what has to be done around them, and against memory.
#include <cmath>
#include <memory>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/floats.h"
#include "kernels/kernel_case.h"
#include "oneapi/dnnl/dnnl.hpp"
#include "src/kernels/cross_network.h"
#include "src/kernels/dot_interaction.h"
#include "src/kernels/fm_interaction.h"
#include "src/kernels/one_omp_thread.h"
#include "src/kernels/target_attention.h"

namespace processor::bench {
namespace {

using dnnl::memory;

memory::desc Rows(const memory::dims& dims, bool transposed = false) {
  using Tag = memory::format_tag;
  const Tag tag = dims.size() == 2 ? Tag::ab : transposed ? Tag::acb : Tag::abc;
  return memory::desc(dims, memory::data_type::f32, tag);
}

/// Products of oneDNN, one after the other, that were added before.
class Onednn {
 public:
  Onednn() : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}

  /// dst = eltwise(src · weights + bias) [∘ times + plus]; all outlive this.
  void Add(const memory::desc& src_desc, const float* src, const memory::desc& weights_desc, const float* weights,
           const float* bias, const memory::desc& dst_desc, float* dst, bool sigmoid = false,
           const float* times = nullptr, const float* plus = nullptr) {
    const OneOmpThread one_thread;
    dnnl::post_ops ops;
    std::unordered_map<int, memory> arguments;
    if (sigmoid) ops.append_eltwise(dnnl::algorithm::eltwise_logistic, 0, 0);
    for (const auto& [kind, data] :
         {std::pair{dnnl::algorithm::binary_mul, times}, {dnnl::algorithm::binary_add, plus}}) {
      if (data == nullptr) continue;
      arguments[DNNL_ARG_ATTR_MULTIPLE_POST_OP(ops.len()) | DNNL_ARG_SRC_1] = Memory(dst_desc, data);
      ops.append_binary(kind, dst_desc);
    }
    dnnl::primitive_attr attributes;
    attributes.set_post_ops(ops);
    const memory::dim units = dst_desc.get_dims().back();
    const memory::desc bias_desc = bias == nullptr ? memory::desc() : Rows({1, units});
    // Constant weights are packed before, as ours are.
    const bool constant = weights_desc.get_ndims() == 2;
    const memory::desc any(weights_desc.get_dims(), memory::data_type::f32, memory::format_tag::any);
    const dnnl::matmul::primitive_desc desc(engine_, src_desc, constant ? any : weights_desc, bias_desc, dst_desc,
                                            attributes);
    memory given = Memory(weights_desc, weights), packed = given;
    if (constant) {
      packed = memory(desc.weights_desc(), engine_);
      dnnl::reorder(given, packed).execute(stream_, given, packed);
      stream_.wait();
    }
    arguments[DNNL_ARG_SRC] = Memory(src_desc, src);
    arguments[DNNL_ARG_WEIGHTS] = packed;
    if (bias != nullptr) arguments[DNNL_ARG_BIAS] = Memory(bias_desc, bias);
    arguments[DNNL_ARG_DST] = Memory(dst_desc, dst);
    products_.emplace_back(dnnl::matmul(desc), std::move(arguments));
  }

  void Run() {
    const OneOmpThread one_thread;
    for (auto& [primitive, arguments] : products_) primitive.execute(stream_, arguments);
    stream_.wait();
  }

 private:
  memory Memory(const memory::desc& desc, const float* data) { return memory(desc, engine_, const_cast<float*>(data)); }

  dnnl::engine engine_;
  dnnl::stream stream_;
  std::vector<std::pair<dnnl::matmul, std::unordered_map<int, memory>>> products_;
};

KernelCase FmCase(int64_t rows, int64_t fields, int64_t dim) {
  struct Data {
    Floats x, ours, theirs;
  };
  auto data = std::make_shared<Data>();
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
  KernelCase made;
  made.bytes = 4.0 * static_cast<double>(rows * fields * dim);
  made.ways = {{"fm", ours}, {"pairs", pairs}};
  made.check = [=] { return ours(), pairs(), Differences(data->ours, data->theirs); };
  return made;
}

KernelCase DotCase(int64_t rows, int64_t fields, int64_t dim) {
  struct Data {
    Floats x, all, ours, theirs, scratch;
    std::vector<int64_t> pairs;
    Onednn onednn;
  };
  auto data = std::make_shared<Data>();
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
  data->onednn.Add(Rows({rows, fields, dim}), data->x.data(), Rows({rows, dim, fields}, true), data->x.data(), nullptr,
                   Rows({rows, fields, fields}), data->all.data());
  auto ours = [=] { kernel->Rows(data->x.data(), rows, dim, data->scratch.data(), data->ours.data()); };
  auto onednn = [=] {
    data->onednn.Run();
    for (int64_t row = 0; row < rows; ++row) {
      const float* all = data->all.data() + row * fields * fields;
      for (int64_t i = 0; i < count; ++i) data->theirs[row * count + i] = all[data->pairs[i]];
    }
  };
  KernelCase made;
  made.flops = static_cast<double>(rows * fields * fields * dim);
  made.ways = {{"dot", ours}, {"onednn", onednn}};
  made.check = [=] { return ours(), onednn(), Differences(data->ours, data->theirs); };
  return made;
}

KernelCase CrossCase(int64_t rows, int64_t width, int layers) {
  struct Data {
    std::vector<Floats> kernels, biases, states;
    Floats ours, scratch;
    Onednn onednn;
  };
  auto data = std::make_shared<Data>();
  data->states.push_back(Random(rows * width, 1, 1));
  std::vector<const float*> kernels, biases;
  for (int i = 0; i < layers; ++i) {
    data->kernels.push_back(Random(width * width, 1 / std::sqrt(static_cast<float>(width)), 2 + i));
    data->biases.push_back(Random(width, 1, 12 + i));
    data->states.emplace_back(rows * width);
  }
  for (int i = 0; i < layers; ++i) {
    kernels.push_back(data->kernels[i].data());
    biases.push_back(data->biases[i].data());
    data->onednn.Add(Rows({rows, width}), data->states[i].data(), Rows({width, width}), kernels[i], biases[i],
                     Rows({rows, width}), data->states[i + 1].data(), false, data->states[0].data(),
                     data->states[i].data());
  }
  auto kernel = std::make_shared<CrossMatrices>(kernels, biases, width, 0, false);
  data->ours.resize(rows * width);
  data->scratch.resize(kernel->scratch());
  auto ours = [=] { kernel->Rows(data->states[0].data(), rows, data->scratch.data(), data->ours.data()); };
  auto onednn = [=] { data->onednn.Run(); };
  KernelCase made;
  made.flops = 2.0 * static_cast<double>(layers * rows * width * width);
  made.ways = {{"cross", ours}, {"onednn", onednn}};
  made.check = [=] { return ours(), onednn(), Differences(data->ours, data->states.back()); };
  return made;
}

KernelCase AttentionCase(int64_t rows, int64_t length, int64_t dim, const std::vector<int64_t>& units) {
  struct Data {
    Floats query, keys, parts, ours, theirs, scratch;
    std::vector<Floats> kernels, biases, states;
    Onednn onednn;
  };
  auto data = std::make_shared<Data>();
  data->query = Random(rows * dim, 1, 1);
  data->keys = Random(rows * length * dim, 1, 2);
  data->parts.resize(rows * length * 4 * dim);
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
    data->onednn.Add(Rows({rows * length, inputs}), i == 0 ? data->parts.data() : data->states[i - 1].data(),
                     Rows({inputs, units[i]}), layer.kernel, layer.bias, Rows({rows * length, units[i]}),
                     data->states[i].data(), !last);
    inputs = units[i];
  }
  const std::vector<AttentionPart> parts = {AttentionPart::kQuery, AttentionPart::kKey, AttentionPart::kQueryMinusKey,
                                            AttentionPart::kProduct};
  auto unit = std::make_shared<TargetAttention>(dim, parts, layers, AttentionRule{});
  data->scratch.resize(unit->scratch(length));
  auto ours = [=] {
    unit->Rows(data->query.data(), data->keys.data(), {}, 0, rows, length, data->scratch.data(), data->ours.data());
  };
  auto onednn = [=] {
    for (int64_t row = 0; row < rows * length; ++row) {
      const float *q = data->query.data() + row / length * dim, *k = data->keys.data() + row * dim;
      float* part = data->parts.data() + row * 4 * dim;
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
        for (int64_t e = 0; e < dim; ++e) dst[e] += data->states.back()[t] * data->keys[t * dim + e];
      }
    }
  };
  KernelCase made;
  made.flops = 2.0 * static_cast<double>(rows * length * unit->position_cost());
  made.ways = {{"attention", ours}, {"onednn", onednn}};
  made.check = [=] { return ours(), onednn(), Differences(data->ours, data->theirs); };
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

[[maybe_unused]] const bool registered = RegisterInteractionCases();

}  // namespace
}  // namespace processor::bench
