// SPDX-License-Identifier: Apache-2.0
// The products of oneDNN in int8, to which the benchmark compares int8 towers.
#ifndef PROCESSOR_BENCH_KERNELS_ONEDNN_INT8_H_
#define PROCESSOR_BENCH_KERNELS_ONEDNN_INT8_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "oneapi/dnnl/dnnl.hpp"
#include "src/base/huge_memory.h"
#include "src/kernels/one_omp_thread.h"

namespace processor::bench {

/// Dense layers in int8, the form that costs oneDNN least: the scales of activations are known beforehand, the input is
/// rounded beforehand, and each layer writes int8 for the next. Weights have a scale for each column, the last layer
/// writes floats.
class OnednnInt8 {
 public:
  explicit OnednnInt8(int64_t rows) : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_), rows_(rows) {}

  /// Rounds the input [rows, k].
  void SetInput(const float* x, int64_t k) {
    scale_ = Greatest(x, rows_ * k) / 127;
    src_ = Own({rows_, k}, Type::s8);
    auto* const bytes = static_cast<int8_t*>(src_.get_data_handle());
    for (int64_t i = 0; i < rows_ * k; ++i) bytes[i] = static_cast<int8_t>(std::nearbyint(x[i] / scale_));
  }

  /// Adds a layer with relu whose results in fp32 are `expected` [rows, n], from which their scale is found. The bias
  /// outlives this object.
  void AddHidden(const float* weights, const float* bias, int64_t k, int64_t n, const float* expected) {
    const float scale = Greatest(expected, rows_ * n) / 127;
    memory dst = Own({rows_, n}, Type::s8);
    Add(weights, bias, k, n, dst, &scale);
    src_ = dst;
    scale_ = scale;
  }

  /// Adds the last layer, which writes `dst` [rows, n].
  void AddLast(const float* weights, const float* bias, int64_t k, int64_t n, float* dst) {
    Add(weights, bias, k, n, memory(Desc({rows_, n}, Type::f32), engine_, dst), nullptr);
  }

  void Run() {
    const OneOmpThread one_thread;
    for (auto& [product, arguments] : products_) product.execute(stream_, arguments);
    stream_.wait();
  }

 private:
  using memory = dnnl::memory;
  using Type = memory::data_type;

  static float Greatest(const float* numbers, int64_t count) {
    float found = 1e-30f;
    for (int64_t i = 0; i < count; ++i) found = std::max(found, std::fabs(numbers[i]));
    return found;
  }

  static memory::desc Desc(const memory::dims& dims, Type type) {
    return {dims, type, dims.size() == 1 ? memory::format_tag::a : memory::format_tag::ab};
  }

  memory Own(const memory::dims& dims, Type type) { return Own(Desc(dims, type)); }
  memory Own(const memory::desc& desc) {
    memory_.emplace_back(std::max<size_t>(desc.get_size(), 1));
    return memory(desc, engine_, memory_.back().data());
  }

  memory Scales(const std::vector<float>& scales) {
    memory made = Own({static_cast<int64_t>(scales.size())}, Type::f32);
    std::copy(scales.begin(), scales.end(), static_cast<float*>(made.get_data_handle()));
    return made;
  }

  void Add(const float* weights, const float* bias, int64_t k, int64_t n, memory dst, const float* dst_scale) {
    const OneOmpThread one_thread;
    std::vector<float> column_scales(static_cast<size_t>(n), 1e-30f);
    for (int64_t i = 0; i < k * n; ++i) {
      column_scales[i % n] = std::max(column_scales[i % n], std::fabs(weights[i]) / 127);
    }
    memory rounded = Own({k, n}, Type::s8);
    auto* const bytes = static_cast<int8_t*>(rounded.get_data_handle());
    for (int64_t i = 0; i < k * n; ++i)
      bytes[i] = static_cast<int8_t>(std::nearbyint(weights[i] / column_scales[i % n]));

    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    attributes.set_scales_mask(DNNL_ARG_SRC, 0);
    attributes.set_scales_mask(DNNL_ARG_WEIGHTS, 1 << 1);
    dnnl::post_ops ops;
    if (dst_scale != nullptr) {
      attributes.set_scales_mask(DNNL_ARG_DST, 0);
      ops.append_eltwise(dnnl::algorithm::eltwise_relu, 0, 0);
    }
    attributes.set_post_ops(ops);
    const memory::desc bias_desc = Desc({1, n}, Type::f32);
    const dnnl::matmul::primitive_desc desc(engine_, src_.get_desc(),
                                            memory::desc({k, n}, Type::s8, memory::format_tag::any), bias_desc,
                                            dst.get_desc(), attributes);
    memory packed = Own(desc.weights_desc());
    dnnl::reorder(rounded, packed).execute(stream_, rounded, packed);
    stream_.wait();
    std::unordered_map<int, memory> arguments = {{DNNL_ARG_SRC, src_},
                                                 {DNNL_ARG_WEIGHTS, packed},
                                                 {DNNL_ARG_BIAS, memory(bias_desc, engine_, const_cast<float*>(bias))},
                                                 {DNNL_ARG_DST, dst},
                                                 {DNNL_ARG_SCRATCHPAD, Own(desc.scratchpad_desc())},
                                                 {DNNL_ARG_ATTR_SCALES | DNNL_ARG_SRC, Scales({scale_})},
                                                 {DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS, Scales(column_scales)}};
    if (dst_scale != nullptr) arguments[DNNL_ARG_ATTR_SCALES | DNNL_ARG_DST] = Scales({*dst_scale});
    products_.emplace_back(dnnl::matmul(desc), std::move(arguments));
  }

  dnnl::engine engine_;
  dnnl::stream stream_;
  const int64_t rows_;
  memory src_;
  float scale_ = 1;
  std::vector<HugeMemory> memory_;
  std::vector<std::pair<dnnl::matmul, std::unordered_map<int, memory>>> products_;
};

}  // namespace processor::bench

#endif  // PROCESSOR_BENCH_KERNELS_ONEDNN_INT8_H_
