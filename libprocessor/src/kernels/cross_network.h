// SPDX-License-Identifier: Apache-2.0
// The cross network of DCN with vectors as kernels.
#ifndef PROCESSOR_KERNELS_CROSS_NETWORK_H_
#define PROCESSOR_KERNELS_CROSS_NETWORK_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/kernels/cpu_features.h"

namespace processor {

/// Layers `x_{l+1} = x_0 · (x_l · w_l) + b_l + x_l`.
///
/// x_l is always `a · x_0 + c_l`, where c_l is the sum of the biases before and a is a number of the row: so a row costs a
/// product with each kernel and one pass that writes the result.
class CrossVectors {
 public:
  /// \param kernels one [width] for each layer
  /// \param biases as many, [width], or none
  void Set(const std::vector<const float*>& kernels, const std::vector<const float*>& biases, int64_t width);

  int64_t width() const { return width_; }
  int64_t layers() const { return static_cast<int64_t>(offsets_.size()); }

  /// Computes rows; `src` and `dst` [rows, width].
  void Rows(const float* src, int64_t rows, float* dst, Isa isa = ThisCpu().isa) const;

 private:
  int64_t width_ = 0;
  std::vector<float> kernels_;  // [layers, width]
  std::vector<float> offsets_;  // c_l · w_l of each layer
  std::vector<float> bias_;     // the sum of all biases
};

}  // namespace processor

#endif  // PROCESSOR_KERNELS_CROSS_NETWORK_H_
