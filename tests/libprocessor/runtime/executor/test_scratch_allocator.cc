// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/executor/scratch_allocator.h"

#include <malloc.h>

#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/byte_budget.h"

namespace processor {
namespace {

// Sizes around every boundary between classes, up to and beyond what is kept.
std::vector<size_t> Sizes() {
  std::vector<size_t> sizes = {0, 1, 7};
  for (size_t octave = 64; octave <= (128 << 10); octave *= 2) {
    for (size_t quarter = 0; quarter < 4; ++quarter) {
      const size_t size = octave + octave / 4 * quarter;
      for (const size_t near : {size - 1, size, size + 1}) sizes.push_back(near);
    }
  }
  return sizes;
}

TEST(ScratchAllocator, BlocksOfEverySizeAreAlignedAndKeepTheirBytes) {
  tensorflow::Allocator* allocator = ScratchAllocator();
  const std::vector<size_t> sizes = Sizes();
  // The second and third time most blocks come from what was freed.
  for (int round = 0; round < 3; ++round) {
    std::vector<unsigned char*> blocks;
    for (size_t i = 0; i < sizes.size(); ++i) {
      auto* block = static_cast<unsigned char*>(allocator->AllocateRaw(64, sizes[i]));
      ASSERT_NE(block, nullptr) << sizes[i];
      EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 64, 0u) << sizes[i];
      std::memset(block, static_cast<int>(i & 0xFF), sizes[i]);
      blocks.push_back(block);
    }
    for (size_t i = 0; i < sizes.size(); ++i) {
      for (size_t byte = 0; byte < sizes[i]; ++byte) ASSERT_EQ(blocks[i][byte], i & 0xFF) << sizes[i];
      allocator->DeallocateRaw(blocks[i]);
    }
  }
}

TEST(ScratchAllocator, ReusesFreedBlocks) {
  tensorflow::Allocator* allocator = ScratchAllocator();
  for (const size_t size : {size_t{64}, size_t{1000}, size_t{64} << 10}) {
    void* first = allocator->AllocateRaw(64, size);
    allocator->DeallocateRaw(first);
    void* second = allocator->AllocateRaw(64, size);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    EXPECT_EQ(first, second) << size;
#endif
    allocator->DeallocateRaw(second);
  }
}

TEST(ScratchAllocator, WiderAlignmentIsKept) {
  for (const size_t alignment : {128, 4096}) {
    void* block = ScratchAllocator()->AllocateRaw(alignment, 100);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % alignment, 0u);
    ScratchAllocator()->DeallocateRaw(block);
  }
}

TEST(ScratchAllocator, ReturnsNullForImpossibleSizes) {
  EXPECT_EQ(ScratchAllocator()->AllocateRaw(64, SIZE_MAX - 100), nullptr);
}

TEST(ScratchAllocator, AnyThreadMayFree) {
  tensorflow::Allocator* allocator = ScratchAllocator();
  std::vector<void*> blocks;
  for (int i = 0; i < 1000; ++i) blocks.push_back(allocator->AllocateRaw(64, 64 * (i % 1100)));
  std::thread([&] {
    for (void* block : blocks) allocator->DeallocateRaw(block);
    for (int i = 0; i < 1000; ++i) allocator->DeallocateRaw(allocator->AllocateRaw(64, 64 * (i % 1100)));
  }).join();
}

// Frees what it holds when its thread ends, after whatever was used in the thread later than it.
struct FreedLate {
  ~FreedLate() {
    for (void* block : blocks) ScratchAllocator()->DeallocateRaw(block);
  }
  std::vector<void*> blocks;
};

TEST(ScratchAllocator, DoesNotCacheBlocksFreedByAnEndingThread) {
  constexpr int kThreads = 100;
  const auto one_thread = [] {
    thread_local FreedLate late;
    late.blocks.clear();  // makes it, before the thread's cache
    for (int i = 0; i < 12; ++i) late.blocks.push_back(ScratchAllocator()->AllocateRaw(64, 64 << 10));
    ScratchAllocator()->DeallocateRaw(ScratchAllocator()->AllocateRaw(64, 64));
  };
  std::thread(one_thread).join();
  const size_t before = mallinfo2().uordblks;
  for (int i = 0; i < kThreads; ++i) std::thread(one_thread).join();
  const size_t after = mallinfo2().uordblks;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(after, before + (size_t{4} << 20)) << "twelve blocks of 64 KiB for each of " << kThreads << " threads";
#else
  (void)before, (void)after;  // the sanitizer's own leak check looks after it
#endif
}

TEST(ScratchAllocator, LargeBlocksOfRequestsAreClaimed) {
  ByteBudget& budget = ByteBudget::Requests();
  const int64_t before = budget.in_use(ByteBudget::Use::kRun);
  tensorflow::Allocator* const requests = ScratchAllocator(ScratchUse::kRequests);
  void* const small = requests->AllocateRaw(64, 64 << 10);
  EXPECT_EQ(budget.in_use(ByteBudget::Use::kRun), before);
  void* const large = requests->AllocateRaw(64, 100 << 10);
  EXPECT_EQ(budget.in_use(ByteBudget::Use::kRun), before + (100 << 10));
  EXPECT_EQ(requests->AllocateRaw(64, static_cast<size_t>(budget.limit()) + 1), nullptr);
  EXPECT_EQ(ScratchAllocator(ScratchUse::kWarmUp)->AllocateRaw(64, size_t{1} << 50), nullptr);
  // Any of them may free it.
  ScratchAllocator(ScratchUse::kModel)->DeallocateRaw(large);
  requests->DeallocateRaw(small);
  EXPECT_EQ(budget.in_use(ByteBudget::Use::kRun), before);
  void* const of_model = ScratchAllocator()->AllocateRaw(64, 100 << 10);
  EXPECT_EQ(budget.in_use(ByteBudget::Use::kRun), before);
  ScratchAllocator()->DeallocateRaw(of_model);
}

}  // namespace
}  // namespace processor
