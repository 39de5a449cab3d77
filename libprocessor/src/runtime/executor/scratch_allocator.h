// SPDX-License-Identifier: Apache-2.0
// Allocates the tensors that a step computes: thousands of small ones in every request.
//
// TensorFlow's allocator calls posix_memalign for each, glibc's slow path: a fifth of the time of a small request. This
// one keeps freed blocks on the thread that freed them, by size class, up to a bound, and asks malloc for the rest. Any
// thread may free any block.
//
// All sessions compute with it, including the one that restores a version: a restored variable may share the block into
// which it was read. No block is in a cache while it is in use, and blocks above 64 KiB never are.
#ifndef PROCESSOR_RUNTIME_EXECUTOR_SCRATCH_ALLOCATOR_H_
#define PROCESSOR_RUNTIME_EXECUTOR_SCRATCH_ALLOCATOR_H_

#include "tensorflow/core/framework/allocator.h"

namespace processor {

/// Which budget pays for blocks above 64 KiB: none for the model itself, or that of warm-up or of requests.
enum class ScratchUse { kModel, kWarmUp, kRequests };

/// Returns an allocator, which is never destroyed, since results may outlive every model. A block that does not fit
/// into the budget is not allocated, which ops report as RESOURCE_EXHAUSTED.
tensorflow::Allocator* ScratchAllocator(ScratchUse use = ScratchUse::kModel);

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_EXECUTOR_SCRATCH_ALLOCATOR_H_
