// SPDX-License-Identifier: Apache-2.0
// The cross networks of DCN. A network is made once from its weights, which it copies, and is constant afterwards; any thread
// may compute rows with it.
#ifndef PROCESSOR_KERNELS_CROSS_NETWORK_H_
#define PROCESSOR_KERNELS_CROSS_NETWORK_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/kernels/cpu_features.h"
#include "src/kernels/weight_panels.h"

namespace processor {

/// Layers `x_{l+1} = x_0 · (x_l · w_l) + b_l + x_l`, w_l being vectors.
///
/// x_l always equals `a · x_0 + c_l`, where c_l is the sum of the previous biases and a is a number of the row. So a row
/// costs one product with each kernel and one pass that writes the result.
class CrossVectors {
 public:
  /// \param kernels one [width] for each layer
  /// \param biases as many, [width], or none
  CrossVectors(const std::vector<const float*>& kernels, const std::vector<const float*>& biases, int64_t width);

  int64_t width() const { return width_; }
  int64_t layers() const { return static_cast<int64_t>(offsets_.size()); }

  /// Computes rows; `src` and `dst` [rows, width].
  void Rows(const float* src, int64_t rows, float* dst, Isa isa = ThisCpu().isa) const;

 private:
  void LayerByLayer(const float* src, float* dst) const;

  int64_t width_ = 0;
  std::vector<float> biases_;   // of each layer
  std::vector<float> kernels_;  // [layers, width]
  std::vector<float> offsets_;  // c_l · w_l of each layer
  std::vector<float> bias_;     // the sum of all biases
};

/// Layers `x_{l+1} = x_0 ∘ (x_l · W_l + b_l) + x_l`, W_l being matrices, or products of two thin ones.
class CrossMatrices {
 public:
  /// \param kernels W_l [width, width] for each layer; with a `rank` above 0 two, [width, rank] and [rank, width]
  /// \param biases [width] for each layer, or none
  /// \param transposed whether the kernels are given transposed
  CrossMatrices(const std::vector<const float*>& kernels, const std::vector<const float*>& biases, int64_t width,
                int64_t rank, bool transposed);

  /// Returns the floats of scratch memory that `Rows` needs.
  size_t scratch() const { return kBlock * (width_ + rank_); }
  /// Returns the number of multiplications for a row.
  int64_t row_cost() const;

  /// Computes rows; `src` and `dst` [rows, width].
  void Rows(const float* src, int64_t rows, float* scratch, float* dst, Isa isa = ThisCpu().isa) const;

 private:
  // Rows that pass through all layers together: enough to read weights rarely, few enough to stay in the cache.
  static constexpr int64_t kBlock = 48;

  struct Packed {
    PanelShape shape;
    std::vector<unsigned char> panels;
  };
  struct Layer {
    std::vector<Packed> kernels;  // one, or two of low rank
    std::vector<float> bias;
  };

  int64_t width_ = 0;
  int64_t rank_ = 0;
  std::vector<float> zeros_;
  std::vector<Layer> layers_;
};

}  // namespace processor

#endif  // PROCESSOR_KERNELS_CROSS_NETWORK_H_
