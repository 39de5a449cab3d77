// SPDX-License-Identifier: Apache-2.0
// The memory that requests use while they run: blocks that each thread keeps when it frees them, so that a request in
// steady state asks malloc for none.
//
// Aligned blocks of malloc take glibc's slow path: a fifth of the time of a small request. Blocks are kept by size class, up
// to a bound per thread. No block is kept while it is in use, and large ones never are.
#ifndef PROCESSOR_BASE_MEMORY_BLOCK_H_
#define PROCESSOR_BASE_MEMORY_BLOCK_H_

#include <cstddef>
#include <cstdint>

#include "src/base/byte_budget.h"

namespace processor {

/// The least alignment of a block; TensorFlow's kernels expect it.
constexpr size_t kBlockAlignment = 64;

/// Allocates a block, uninitialized. `alignment`: a power of two.
/// \return null if there is no memory.
void* NewBlock(size_t bytes, size_t alignment = kBlockAlignment);

/// Allocates a block for as long as a model version lives (mapped_memory.h). Where it is mapped, it holds zeros.
/// \return null if there is no memory.
void* NewLastingBlock(size_t bytes, size_t alignment = kBlockAlignment);

/// Frees a block, on any thread, and releases what was claimed for it. Null is ignored.
void FreeBlock(void* block);

/// Hands a claim of bytes over to a block: FreeBlock() releases it. One block has claims of one budget for one use. No other
/// thread may free the block meanwhile.
void HandClaimTo(void* block, ByteBudget* budget, ByteBudget::Use use, int64_t bytes);

}  // namespace processor

#endif  // PROCESSOR_BASE_MEMORY_BLOCK_H_
