// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/cross_network.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "src/kernels/panel_matmul.h"
#include "src/kernels/row_math.h"
#include "src/kernels/vector_loops.h"

namespace processor {
namespace {

template <int kLanes>
PROCESSOR_ALWAYS_INLINE void CrossRows(const float* src, int64_t rows, int64_t width, int64_t layers,
                                       const float* kernels, const float* offsets, const float* bias, float* dst) {
  for (int64_t row = 0; row < rows; ++row, src += width, dst += width) {
    float scale = 1;
    for (int64_t layer = 0; layer < layers; ++layer) {
      scale += scale * Dot<kLanes>(src, kernels + layer * width, width) + offsets[layer];
    }
    for (int64_t i = 0; i < width; ++i) dst[i] = scale * src[i] + bias[i];
  }
}

PROCESSOR_TARGET_AVX512 void CrossRowsAvx512(const float* src, int64_t rows, int64_t width, int64_t layers,
                                             const float* kernels, const float* offsets, const float* bias,
                                             float* dst) {
  CrossRows<kLanesAvx512>(src, rows, width, layers, kernels, offsets, bias, dst);
}

PROCESSOR_TARGET_AVX2 void CrossRowsAvx2(const float* src, int64_t rows, int64_t width, int64_t layers,
                                         const float* kernels, const float* offsets, const float* bias, float* dst) {
  CrossRows<kLanesAvx2>(src, rows, width, layers, kernels, offsets, bias, dst);
}

}  // namespace

CrossVectors::CrossVectors(const std::vector<const float*>& kernels, const std::vector<const float*>& biases,
                           int64_t width)
    : width_(width), offsets_(kernels.size()), bias_(width) {
  // In double precision: they count for every request.
  std::vector<double> sum(width, 0);
  for (size_t layer = 0; layer < kernels.size(); ++layer) {
    kernels_.insert(kernels_.end(), kernels[layer], kernels[layer] + width);
    double offset = 0;
    for (int64_t i = 0; i < width; ++i) offset += sum[i] * kernels[layer][i];
    offsets_[layer] = static_cast<float>(offset);
    for (int64_t i = 0; i < width; ++i) {
      const float bias = biases.empty() ? 0 : biases[layer][i];
      biases_.push_back(bias);
      sum[i] += bias;
    }
  }
  for (int64_t i = 0; i < width; ++i) bias_[i] = static_cast<float>(sum[i]);
}

void CrossVectors::Rows(const float* src, int64_t rows, float* dst, Isa isa) const {
  const float *kernels = kernels_.data(), *offsets = offsets_.data(), *bias = bias_.data();
  switch (isa) {
    case Isa::kAvx512:
      CrossRowsAvx512(src, rows, width_, layers(), kernels, offsets, bias, dst);
      break;
    case Isa::kAvx2:
      CrossRowsAvx2(src, rows, width_, layers(), kernels, offsets, bias, dst);
      break;
    case Isa::kPlain:
      CrossRows<kLanesPlain>(src, rows, width_, layers(), kernels, offsets, bias, dst);
      break;
  }
  if (AllFinite(dst, rows * width_)) return;
  for (int64_t row = 0; row < rows; ++row, src += width_, dst += width_) {
    if (!AllFinite(dst, width_)) LayerByLayer(src, dst);
  }
}

// As the model has it: which sums of infinities are NaN depends on the order.
void CrossVectors::LayerByLayer(const float* src, float* dst) const {
  std::copy_n(src, width_, dst);
  for (int64_t layer = 0; layer < layers(); ++layer) {
    const float *kernel = kernels_.data() + layer * width_, *bias = biases_.data() + layer * width_;
    float product = 0;
    for (int64_t i = 0; i < width_; ++i) product += dst[i] * kernel[i];
    for (int64_t i = 0; i < width_; ++i) dst[i] = src[i] * product + bias[i] + dst[i];
  }
}

CrossMatrices::CrossMatrices(const std::vector<const float*>& kernels, const std::vector<const float*>& biases,
                             int64_t width, int64_t rank, bool transposed)
    : width_(width), rank_(rank), zeros_(std::max(width, rank)) {
  const size_t per_layer = rank > 0 ? 2 : 1;
  layers_.resize(kernels.size() / per_layer);
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    for (size_t i = 0; i < per_layer; ++i) {
      Packed packed;
      packed.shape.k = i == 0 ? width : rank;
      packed.shape.n = i + 1 == per_layer ? width : rank;
      packed.panels.resize(packed.shape.bytes());
      PackPanels(kernels[layer * per_layer + i], transposed, packed.shape, packed.panels.data());
      layers_[layer].kernels.push_back(std::move(packed));
    }
    if (!biases.empty()) layers_[layer].bias.assign(biases[layer], biases[layer] + width);
  }
}

int64_t CrossMatrices::row_cost() const {
  return static_cast<int64_t>(layers_.size()) * width_ * (rank_ > 0 ? 2 * rank_ : width_);
}

void CrossMatrices::Rows(const float* src, int64_t rows, float* scratch, float* dst, Isa isa) const {
  const RowMath& math = RowMathFor(isa);
  float* thin = scratch + kBlock * width_;
  for (int64_t begin = 0; begin < rows; begin += kBlock, src += kBlock * width_, dst += kBlock * width_) {
    const int64_t count = std::min(kBlock, rows - begin);
    std::copy_n(src, count * width_, dst);
    for (const Layer& layer : layers_) {
      PanelMatmul matmul;
      matmul.rows = count;
      matmul.floor = -std::numeric_limits<float>::infinity();
      const float* operand = dst;
      for (const Packed& kernel : layer.kernels) {
        const bool last = &kernel == &layer.kernels.back();
        matmul.src = operand;
        matmul.src_stride = kernel.shape.k;
        matmul.shape = kernel.shape;
        matmul.panels = kernel.panels.data();
        matmul.bias = last && !layer.bias.empty() ? layer.bias.data() : zeros_.data();
        matmul.dst = last ? scratch : thin;
        matmul.dst_stride = kernel.shape.n;
        MultiplyPanels(isa, matmul);
        operand = matmul.dst;
      }
      math.multiply(count, width_, {src, width_}, {scratch, width_});
      math.add(count, width_, {scratch, width_}, {dst, width_});
    }
  }
}

}  // namespace processor
