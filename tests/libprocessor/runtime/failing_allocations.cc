// SPDX-License-Identifier: Apache-2.0
#include "failing_allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<long> before_failure{-1};  // negative: past, or not asked for
std::atomic<bool> asked_for{false};

void* Allocate(std::size_t size) {
  if (asked_for.load(std::memory_order_relaxed) && before_failure.fetch_sub(1) == 0) throw std::bad_alloc();
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t size) { return Allocate(size); }
void* operator new[](std::size_t size) { return Allocate(size); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return std::malloc(size == 0 ? 1 : size); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return std::malloc(size == 0 ? 1 : size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace processor {

void FailAllocation(long number) {
  before_failure = number;
  asked_for = true;
}

bool AllocationHasFailed() {
  asked_for = false;
  return before_failure.exchange(-1) < 0;
}

}  // namespace processor
