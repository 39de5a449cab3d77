// SPDX-License-Identifier: Apache-2.0
// Kernels that prepare their constant inputs once, for all sessions of a model version.
#ifndef PROCESSOR_KERNELS_PREPARED_KERNEL_H_
#define PROCESSOR_KERNELS_PREPARED_KERNEL_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/tensor.h"

namespace processor {

/// An interface that kernels implement beside OpKernel, found by dynamic_cast. The thread that loads a model calls Prepare(),
/// so that no request has to wait for it; a kernel that was not prepared does so in its first Compute().
class PreparedKernel {
 public:
  virtual ~PreparedKernel() = default;

  /// Packs the weights, or finds those that another session of the version has packed.
  ///
  /// `constant_inputs` [inputs of the node] has null for each input that only a request provides.
  /// \return INVALID_ARGUMENT for constants that do not fit the plan; OK, without doing anything, if a constant that is
  ///         needed is missing.
  virtual absl::Status Prepare(absl::Span<const tensorflow::Tensor* const> constant_inputs,
                               tensorflow::ResourceMgr* resources) = 0;
};

}  // namespace processor

#endif  // PROCESSOR_KERNELS_PREPARED_KERNEL_H_
