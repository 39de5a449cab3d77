// SPDX-License-Identifier: Apache-2.0
// What cases are compared with: oneDNN's products alone.
#ifndef PROCESSOR_BENCH_KERNELS_ONEDNN_PRODUCTS_H_
#define PROCESSOR_BENCH_KERNELS_ONEDNN_PRODUCTS_H_

#include <unordered_map>
#include <utility>
#include <vector>

#include "oneapi/dnnl/dnnl.hpp"
#include "src/base/huge_memory.h"
#include "src/kernels/one_omp_thread.h"

namespace processor::bench {

/// The layout of floats, row by row; `transposed` swaps the last two of three dimensions.
inline dnnl::memory::desc Rows(const dnnl::memory::dims& dims, bool transposed = false) {
  using Tag = dnnl::memory::format_tag;
  const Tag tag = dims.size() == 2 ? Tag::ab : transposed ? Tag::acb : Tag::abc;
  return dnnl::memory::desc(dims, dnnl::memory::data_type::f32, tag);
}

/// A product of oneDNN with what it computes in the same pass. The memory outlives the products that it is added to.
struct OnednnProduct {
  dnnl::memory::desc src_desc;
  const float* src;
  dnnl::memory::desc weights_desc;  // of two dimensions: constants, which are packed beforehand, as ours are
  const float* weights;
  const float* bias;  // or null
  dnnl::memory::desc dst_desc;
  float* dst;
  dnnl::algorithm eltwise = dnnl::algorithm::undef;
  const float* times = nullptr;
  const float* plus = nullptr;
};

/// Products, one after the other: dst = eltwise(src · weights + bias) [∘ times + plus].
class OnednnProducts {
 public:
  OnednnProducts() : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}

  void Add(const OnednnProduct& product) {
    using dnnl::memory;
    const OneOmpThread one_thread;
    dnnl::post_ops ops;
    std::unordered_map<int, memory> arguments;
    if (product.eltwise != dnnl::algorithm::undef) ops.append_eltwise(product.eltwise, 0, 0);
    for (const auto& [kind, data] :
         {std::pair{dnnl::algorithm::binary_mul, product.times}, {dnnl::algorithm::binary_add, product.plus}}) {
      if (data == nullptr) continue;
      arguments[DNNL_ARG_ATTR_MULTIPLE_POST_OP(ops.len()) | DNNL_ARG_SRC_1] = View(product.dst_desc, data);
      ops.append_binary(kind, product.dst_desc);
    }
    dnnl::primitive_attr attributes;
    attributes.set_post_ops(ops);
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const memory::desc bias_desc =
        product.bias == nullptr ? memory::desc() : Rows({1, product.dst_desc.get_dims().back()});
    const bool constant = product.weights_desc.get_ndims() == 2;
    const memory::desc any(product.weights_desc.get_dims(), memory::data_type::f32, memory::format_tag::any);
    const dnnl::matmul::primitive_desc desc(engine_, product.src_desc, constant ? any : product.weights_desc, bias_desc,
                                            product.dst_desc, attributes);
    memory weights = View(product.weights_desc, product.weights);
    if (constant) {
      memory packed = OwnMemory(desc.weights_desc());
      dnnl::reorder(weights, packed).execute(stream_, weights, packed);
      stream_.wait();
      weights = packed;
    }
    arguments[DNNL_ARG_SRC] = View(product.src_desc, product.src);
    arguments[DNNL_ARG_WEIGHTS] = weights;
    if (product.bias != nullptr) arguments[DNNL_ARG_BIAS] = View(bias_desc, product.bias);
    arguments[DNNL_ARG_DST] = View(product.dst_desc, product.dst);
    arguments[DNNL_ARG_SCRATCHPAD] = OwnMemory(desc.scratchpad_desc());
    products_.emplace_back(dnnl::matmul(desc), std::move(arguments));
  }

  void Run() {
    const OneOmpThread one_thread;
    for (auto& [product, arguments] : products_) product.execute(stream_, arguments);
    stream_.wait();
  }

 private:
  dnnl::memory View(const dnnl::memory::desc& desc, const float* data) {
    return dnnl::memory(desc, engine_, const_cast<float*>(data));
  }
  dnnl::memory OwnMemory(const dnnl::memory::desc& desc) {
    memory_.emplace_back(desc.get_size());
    return dnnl::memory(desc, engine_, memory_.back().data());
  }

  dnnl::engine engine_;
  dnnl::stream stream_;
  std::vector<HugeMemory> memory_;
  std::vector<std::pair<dnnl::matmul, std::unordered_map<int, dnnl::memory>>> products_;
};

}  // namespace processor::bench

#endif  // PROCESSOR_BENCH_KERNELS_ONEDNN_PRODUCTS_H_
