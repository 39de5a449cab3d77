// SPDX-License-Identifier: Apache-2.0
#include <omp.h>

#include <memory>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine.h"
#include "oneapi/dnnl/dnnl.hpp"

namespace processor::bench {
namespace {

using dnnl::memory;

// The packed weights that all clients read, and for each client's thread its own activations.
class OneDnnEngine : public Engine {
 public:
  OneDnnEngine(const std::vector<int64_t>& widths, int64_t rows) : engine_(dnnl::engine::kind::cpu, 0) {
    if (widths.size() < 2 || rows < 1) throw std::runtime_error("onednn: expected two widths and a row at least");
    std::mt19937 random(0);
    for (size_t layer = 0; layer + 1 < widths.size(); ++layer) {
      const memory::dim k = widths[layer], n = widths[layer + 1];
      const auto any = memory::format_tag::any, plain = memory::format_tag::ab;
      const memory::desc src({rows, k}, memory::data_type::f32, plain), bias({1, n}, memory::data_type::f32, plain),
          dst({rows, n}, memory::data_type::f32, plain);
      dnnl::primitive_attr attributes;
      if (layer + 2 < widths.size()) {
        dnnl::post_ops relu;
        relu.append_eltwise(dnnl::algorithm::eltwise_relu, 0, 0);
        attributes.set_post_ops(relu);
      }
      const dnnl::matmul::primitive_desc description(engine_, src, memory::desc({k, n}, memory::data_type::f32, any),
                                                     bias, dst, attributes);
      Layer made{dnnl::matmul(description), memory(description.weights_desc(), engine_), memory(bias, engine_), src,
                 dst};
      Fill(&made.weights, &random, 1.0f / static_cast<float>(k));
      Fill(&made.bias, &random, 0);
      layers_.push_back(std::move(made));
    }
  }

  void Run(size_t /*index*/) override {
    thread_local std::unique_ptr<Client> client;
    thread_local const OneDnnEngine* owner = nullptr;
    if (owner != this) {
      omp_set_num_threads(1);
      client = std::make_unique<Client>(*this);
      owner = this;
    }
    for (size_t i = 0; i < layers_.size(); ++i) layers_[i].primitive.execute(client->stream, client->arguments[i]);
    client->stream.wait();
  }

  NamedTensors Answer(size_t /*index*/) override { throw std::runtime_error("onednn: answers no requests"); }

 private:
  struct Layer {
    dnnl::matmul primitive;
    memory weights, bias;
    memory::desc src, dst;
  };

  struct Client {
    explicit Client(const OneDnnEngine& owner) : stream(owner.engine_) {
      std::mt19937 random(1);
      memory src(owner.layers_.front().src, owner.engine_);
      Fill(&src, &random, 1);
      for (const Layer& layer : owner.layers_) {
        memory dst(layer.dst, owner.engine_);
        arguments.push_back(
            {{DNNL_ARG_SRC, src}, {DNNL_ARG_WEIGHTS, layer.weights}, {DNNL_ARG_BIAS, layer.bias}, {DNNL_ARG_DST, dst}});
        src = dst;
      }
    }
    dnnl::stream stream;
    std::vector<std::unordered_map<int, memory>> arguments;
  };

  // Written for certain: pages that were never written are all one page, which is always in the cache.
  static void Fill(memory* target, std::mt19937* random, float scale) {
    std::uniform_real_distribution<float> values(-scale, scale);
    auto* data = static_cast<float*>(target->get_data_handle());
    for (size_t i = 0; i < target->get_desc().get_size() / sizeof(float); ++i) data[i] = values(*random);
  }

  dnnl::engine engine_;
  std::vector<Layer> layers_;
};

}  // namespace

std::unique_ptr<Engine> MakeOneDnnEngine(const std::vector<int64_t>& widths, int64_t rows) {
  return std::make_unique<OneDnnEngine>(widths, rows);
}

}  // namespace processor::bench
