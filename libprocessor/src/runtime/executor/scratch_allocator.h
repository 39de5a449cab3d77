// SPDX-License-Identifier: Apache-2.0
// Allocates the tensors that a step computes: thousands of small ones in every request.
//
// TensorFlow's allocator calls posix_memalign for each. This one takes blocks that the thread has kept (memory_block.h).
//
// All sessions compute with it, including the one that restores a version: a restored variable may share the block into
// which it was read.
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
