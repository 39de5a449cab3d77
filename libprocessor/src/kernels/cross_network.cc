// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/cross_network.h"

#include "src/kernels/vector_loops.h"

namespace processor {
namespace {

template <int kLanes>
PROCESSOR_ALWAYS_INLINE void AllRows(const float* src, int64_t rows, int64_t width, int64_t layers,
                                     const float* kernels, const float* offsets, const float* bias, float* dst) {
  for (int64_t row = 0; row < rows; ++row, src += width, dst += width) {
    float scale = 1;
    for (int64_t layer = 0; layer < layers; ++layer) {
      scale += scale * Dot<kLanes>(src, kernels + layer * width, width) + offsets[layer];
    }
    for (int64_t i = 0; i < width; ++i) dst[i] = scale * src[i] + bias[i];
  }
}

PROCESSOR_TARGET_AVX512 void RowsAvx512(const float* src, int64_t rows, int64_t width, int64_t layers,
                                        const float* kernels, const float* offsets, const float* bias, float* dst) {
  AllRows<kLanesAvx512>(src, rows, width, layers, kernels, offsets, bias, dst);
}

PROCESSOR_TARGET_AVX2 void RowsAvx2(const float* src, int64_t rows, int64_t width, int64_t layers, const float* kernels,
                                    const float* offsets, const float* bias, float* dst) {
  AllRows<kLanesAvx2>(src, rows, width, layers, kernels, offsets, bias, dst);
}

}  // namespace

void CrossVectors::Set(const std::vector<const float*>& kernels, const std::vector<const float*>& biases,
                       int64_t width) {
  width_ = width;
  kernels_.clear();
  offsets_.assign(kernels.size(), 0);
  bias_.assign(width, 0);
  // In double precision: they count for every request.
  std::vector<double> sum(width, 0);
  for (size_t layer = 0; layer < kernels.size(); ++layer) {
    kernels_.insert(kernels_.end(), kernels[layer], kernels[layer] + width);
    double offset = 0;
    for (int64_t i = 0; i < width; ++i) offset += sum[i] * kernels[layer][i];
    offsets_[layer] = static_cast<float>(offset);
    if (!biases.empty()) {
      for (int64_t i = 0; i < width; ++i) sum[i] += biases[layer][i];
    }
  }
  for (int64_t i = 0; i < width; ++i) bias_[i] = static_cast<float>(sum[i]);
}

void CrossVectors::Rows(const float* src, int64_t rows, float* dst, Isa isa) const {
  const float *kernels = kernels_.data(), *offsets = offsets_.data(), *bias = bias_.data();
  switch (isa) {
    case Isa::kAvx512:
      return RowsAvx512(src, rows, width_, layers(), kernels, offsets, bias, dst);
    case Isa::kAvx2:
      return RowsAvx2(src, rows, width_, layers(), kernels, offsets, bias, dst);
    case Isa::kPlain:
      return AllRows<kLanesPlain>(src, rows, width_, layers(), kernels, offsets, bias, dst);
  }
}

}  // namespace processor
