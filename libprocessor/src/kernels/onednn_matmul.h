// SPDX-License-Identifier: Apache-2.0
// Computes products with constant weights by oneDNN, on the calling thread.
#ifndef PROCESSOR_KERNELS_ONEDNN_MATMUL_H_
#define PROCESSOR_KERNELS_ONEDNN_MATMUL_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "oneapi/dnnl/dnnl.hpp"
#include "src/base/huge_memory.h"
#include "src/kernels/activation.h"
#include "src/kernels/weight_panels.h"

namespace processor {

/// Computes dst = activation(src · W [+ bias] [+ dst]). Sources have the type of the weights; sums are float. A dense tower
/// owns it.
class OnednnMatmul {
 public:
  /// Numbers of rows are multiples of this, so that few kernels are needed.
  static constexpr int64_t kRowUnit = 8;
  static constexpr int64_t kMaxRows = 128;

  struct Call {
    int64_t rows = 0;  // a multiple of kRowUnit, at most kMaxRows
    const void* src = nullptr;
    int64_t src_stride = 0;       // equal to the width if time matters, as dst_stride; see IsReference()
    const float* bias = nullptr;  // [n]; null: no bias
    bool accumulate = false;      // whether dst is added
    bool activate = false;        // whether the activation of Create() is applied
    void* dst = nullptr;
    int64_t dst_stride = 0;
    bool dst_bfloat16 = false;
  };

  /// Whether oneDNN can apply the activation to the sums with the same result for NaN and infinities as row_math.h.
  static bool CanApply(const Activation& activation);

  /// Copies weights [shape.k, shape.n] or, if `transposed`, [n, k] in the form that oneDNN prefers. If that is the form of
  /// `panels`, which are the same weights packed, these are used instead and must outlive this object.
  static absl::Status Create(const float* weights, bool transposed, const PanelShape& shape, const void* panels,
                             const Activation& activation, std::unique_ptr<OnednnMatmul>* matmul);

  /// Computes a product; any thread may call it. Kernels are made when they are first needed, and kept.
  absl::Status Run(const Call& call) const;

  /// Makes the kernel of a product, and what one run of it needs, unless they exist already. Of the pointers it
  /// only matters whether there is a bias.
  absl::Status Prepare(const Call& call) const;

  /// Whether oneDNN would use its reference code, which is hundreds of times slower. It does so if there are gaps between
  /// the rows of sources or sums, for float only from some size on.
  bool IsReference(const Call& call) const;

  size_t bytes() const { return packed_.size(); }

 private:
  struct Kernel;
  struct Slot;

  OnednnMatmul(const PanelShape& shape, const Activation& activation);
  dnnl::matmul::primitive_desc Describe(const Call& call, const dnnl::memory::desc& weights) const;
  Kernel* FindMade(const Call& call) const;
  Kernel* Find(const Call& call) const;

  const PanelShape shape_;
  const Activation activation_;
  dnnl::memory::desc weights_desc_;
  void* weights_ = nullptr;
  HugeMemory packed_;
  mutable std::mutex mutex_;  // held while a kernel is made
  // Lists of kernels, one for each number of rows. Kernels are only added, so that they are found without a lock.
  mutable std::array<std::atomic<Kernel*>, kMaxRows / kRowUnit> kernels_{};

 public:
  ~OnednnMatmul();
};

}  // namespace processor

#endif  // PROCESSOR_KERNELS_ONEDNN_MATMUL_H_
