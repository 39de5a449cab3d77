// SPDX-License-Identifier: Apache-2.0
// The allocator of what a step computes: small tensors, made and dropped by the thousand in every request.
//
// TensorFlow's takes each from posix_memalign, glibc's slow path, which was a fifth of the time of a small request.
// This one keeps freed blocks on the thread that freed them, by size class, up to a bound, and asks malloc for the
// rest. Any thread may free any block.
//
// All sessions compute with it, also the one that restores a version: a restored variable may be the very tensor that was
// read, and so a block from here. It is never in a cache while it is in use, and above 64 KiB it never was.
#ifndef PROCESSOR_RUNTIME_EXECUTOR_SCRATCH_ALLOCATOR_H_
#define PROCESSOR_RUNTIME_EXECUTOR_SCRATCH_ALLOCATOR_H_

#include "tensorflow/core/framework/allocator.h"

namespace processor {

/// Of whom blocks above 64 KiB are claimed: of nobody (what a model is made of), or of a budget.
enum class ScratchUse { kModel, kWarmUp, kRequests };

/// The allocators; they are never destroyed, since results may outlive every model. What does not fit into the budget is
/// not allocated, which ops answer with RESOURCE_EXHAUSTED.
tensorflow::Allocator* ScratchAllocator(ScratchUse use = ScratchUse::kModel);

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_EXECUTOR_SCRATCH_ALLOCATOR_H_
