// SPDX-License-Identifier: Apache-2.0
// Memory that a model version keeps as long as it lives: weights, tables, constants.
//
// It is mapped, not taken from malloc. When a version goes, its pages go back to the operating system at once. malloc would
// keep most of them, and malloc_trim() holds the locks of all its arenas for some 10 ms, while requests wait for them.
#ifndef PROCESSOR_BASE_MAPPED_MEMORY_H_
#define PROCESSOR_BASE_MAPPED_MEMORY_H_

#include <cstddef>

namespace processor {

/// Smaller pieces are taken from malloc: the number of mappings of a process is limited (65,530 by default).
constexpr size_t kLeastMapped = size_t{64} << 10;

/// Maps pages of zeros for `bytes` (more than none). `alignment`: a power of two.
/// \return null if there is no memory.
void* MapMemory(size_t bytes, size_t alignment);

/// Gives back what MapMemory() returned for `bytes`.
void UnmapMemory(void* memory, size_t bytes);

}  // namespace processor

#endif  // PROCESSOR_BASE_MAPPED_MEMORY_H_
