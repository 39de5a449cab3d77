// SPDX-License-Identifier: Apache-2.0
// Kernels that make something of their constant inputs once, for all sessions of a model version.
#ifndef PROCESSOR_KERNELS_PREPARED_KERNEL_H_
#define PROCESSOR_KERNELS_PREPARED_KERNEL_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/tensor.h"

namespace processor {

/// A kernel implements it besides OpKernel; dynamic_cast finds it. Prepare is called when a model is loaded, so
/// that no request pays for it; a kernel that was not prepared does it in its first Compute.
class PreparedKernel {
 public:
  virtual ~PreparedKernel() = default;

  /// Packs the weights, or finds them packed by another session of the version.
  ///
  /// `constant_inputs` [inputs of the node] is null where an input is not known before a request comes.
  /// \return INVALID_ARGUMENT for constants that do not fit the plan. If a constant that is needed is missing, nothing
  ///         is done and OK is returned.
  virtual absl::Status Prepare(absl::Span<const tensorflow::Tensor* const> constant_inputs,
                               tensorflow::ResourceMgr* resources) = 0;
};

}  // namespace processor

#endif  // PROCESSOR_KERNELS_PREPARED_KERNEL_H_
