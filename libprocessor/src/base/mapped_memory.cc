// SPDX-License-Identifier: Apache-2.0
#include "src/base/mapped_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace processor {
namespace {

size_t PageSize() {
  static const auto size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

size_t ToMultiple(size_t value, size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

}  // namespace

void* MapMemory(size_t bytes, size_t alignment) {
  const size_t spare = alignment > PageSize() ? alignment - PageSize() : 0;
  if (bytes > SIZE_MAX / 2 || spare > SIZE_MAX / 4) return nullptr;
  const size_t kept = ToMultiple(bytes, PageSize());
  void* const mapped = mmap(nullptr, kept + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  if (spare == 0) return mapped;
  // Pages are only mapped to find an aligned place; those around it go back.
  char* const begin = static_cast<char*>(mapped);
  const auto address = reinterpret_cast<uintptr_t>(begin);
  const size_t before = ToMultiple(address, alignment) - address;
  char* const memory = begin + before;
  if (before > 0) munmap(begin, before);
  if (before < spare) munmap(memory + kept, spare - before);
  return memory;
}

void UnmapMemory(void* memory, size_t bytes) { munmap(memory, ToMultiple(bytes, PageSize())); }

}  // namespace processor
