// SPDX-License-Identifier: Apache-2.0
// Products with constant weights through oneDNN, on the calling thread.
#ifndef PROCESSOR_KERNELS_ONEDNN_MATMUL_H_
#define PROCESSOR_KERNELS_ONEDNN_MATMUL_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "oneapi/dnnl/dnnl.hpp"
#include "src/kernels/activation.h"
#include "src/kernels/huge_memory.h"
#include "src/kernels/weight_panels.h"

namespace processor {

/// dst = activation(src · W [+ bias] [+ dst]). Sources have the type of the weights; sums are float.
class OnednnMatmul {
 public:
  /// Rows are computed in numbers that are multiples of this, so that there are few kernels to make.
  static constexpr int64_t kRowUnit = 8;
  static constexpr int64_t kMaxRows = 128;

  struct Call {
    int64_t rows = 0;  // a multiple of kRowUnit, at most kMaxRows
    const void* src = nullptr;
    int64_t src_stride = 0;       // of both: the width, where time counts; see IsReference()
    const float* bias = nullptr;  // [n]; null: none
    bool accumulate = false;      // dst is added too
    bool activate = false;        // with what Create was given
    void* dst = nullptr;
    int64_t dst_stride = 0;
    bool dst_bfloat16 = false;
  };

  /// Can oneDNN apply it to the sums, with the same answer for NaN and infinities as row_math.h?
  static bool CanApply(const Activation& activation);

  /// Takes weights [shape.k, shape.n] or, if `transposed`, [n, k], and keeps them in the form that oneDNN wants.
  /// `panels` are the same weights packed; they are used, and must outlive this, if oneDNN wants that form.
  static absl::Status Create(const float* weights, bool transposed, const PanelShape& shape, const void* panels,
                             const Activation& activation, std::unique_ptr<OnednnMatmul>* matmul);

  /// Safe to call on several threads at once. Kernels are made when they are first needed, and kept.
  absl::Status Run(const Call& call) const;

  /// Makes a kernel, if it is not there, without running it.
  absl::Status Prepare(const Call& call) const;

  /// Would oneDNN compute it with the code that defines the right answer, hundreds of times slower? So it does for bfloat16
  /// if rows, of sources or of sums, have gaps between them.
  bool IsReference(const Call& call) const;

  size_t bytes() const { return packed_.size(); }

 private:
  struct Kernel;
  struct Slot;

  OnednnMatmul(const PanelShape& shape, const Activation& activation);
  dnnl::matmul::primitive_desc Describe(const Call& call, const dnnl::memory::desc& weights) const;
  Kernel* Find(const Call& call) const;

  const PanelShape shape_;
  const Activation activation_;
  dnnl::memory::desc weights_desc_;
  void* weights_ = nullptr;
  HugeMemory packed_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Kernel>> kernels_;

 public:
  ~OnednnMatmul();
};

}  // namespace processor

#endif  // PROCESSOR_KERNELS_ONEDNN_MATMUL_H_
