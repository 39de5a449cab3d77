// SPDX-License-Identifier: Apache-2.0
#include "src/base/memory_block.h"

#include <malloc.h>
#include <sys/mman.h>

#include <cerrno>
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
  for (size_t octave = 64; octave <= (512 << 10); octave *= 2) {
    for (size_t quarter = 0; quarter < 4; ++quarter) {
      const size_t size = octave + octave / 4 * quarter;
      for (const size_t near : {size - 1, size, size + 1}) sizes.push_back(near);
    }
  }
  return sizes;
}

TEST(MemoryBlock, BlocksOfEverySizeAreAlignedAndKeepTheirBytes) {
  const std::vector<size_t> sizes = Sizes();
  // The second and third time most blocks come from what was freed.
  for (int round = 0; round < 3; ++round) {
    std::vector<unsigned char*> blocks;
    for (size_t i = 0; i < sizes.size(); ++i) {
      auto* block = static_cast<unsigned char*>(NewBlock(sizes[i]));
      ASSERT_NE(block, nullptr) << sizes[i];
      EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 64, 0u) << sizes[i];
      std::memset(block, static_cast<int>(i & 0xFF), sizes[i]);
      blocks.push_back(block);
    }
    for (size_t i = 0; i < sizes.size(); ++i) {
      for (size_t byte = 0; byte < sizes[i]; ++byte) ASSERT_EQ(blocks[i][byte], i & 0xFF) << sizes[i];
      FreeBlock(blocks[i]);
    }
  }
}

TEST(MemoryBlock, ReusesFreedBlocks) {
  for (const size_t size : {size_t{64}, size_t{1000}, size_t{64} << 10, size_t{256} << 10}) {
    void* first = NewBlock(size);
    FreeBlock(first);
    void* second = NewBlock(size);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    EXPECT_EQ(first, second) << size;
#endif
    FreeBlock(second);
  }
}

TEST(MemoryBlock, WiderAlignmentIsKept) {
  for (const size_t alignment : {128, 4096}) {
    void* block = NewBlock(100, alignment);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % alignment, 0u);
    FreeBlock(block);
  }
}

TEST(MemoryBlock, ReturnsNullForImpossibleSizes) {
  EXPECT_EQ(NewBlock(SIZE_MAX - 100), nullptr);
  EXPECT_EQ(NewLastingBlock(SIZE_MAX - 10), nullptr);
}

TEST(MemoryBlock, LastingBlocksOfEverySizeAreAlignedAndKeepTheirBytes) {
  for (const size_t size : Sizes()) {
    for (const size_t alignment : {64, 4096}) {
      auto* block = static_cast<unsigned char*>(NewLastingBlock(size, alignment));
      ASSERT_NE(block, nullptr) << size;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % alignment, 0u) << size;
      std::memset(block, 7, size);
      for (size_t byte = 0; byte < size; ++byte) ASSERT_EQ(block[byte], 7) << size;
      FreeBlock(block);
    }
  }
}

TEST(MemoryBlock, LargeLastingBlocksAreGivenBackToTheSystem) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  const size_t size = size_t{1} << 20;
  void* const block = NewLastingBlock(size);
  FreeBlock(block);
  unsigned char in_memory;
  EXPECT_EQ(mincore(static_cast<char*>(block) + (1 << 12) - 64, 1, &in_memory), -1);
  EXPECT_EQ(errno, ENOMEM);
#endif
}

TEST(MemoryBlock, AnyThreadMayFree) {
  std::vector<void*> blocks;
  for (int i = 0; i < 1000; ++i) blocks.push_back(NewBlock(64 * (i % 1100)));
  std::thread([&] {
    for (void* block : blocks) FreeBlock(block);
    for (int i = 0; i < 1000; ++i) FreeBlock(NewBlock(64 * (i % 1100)));
  }).join();
}

// Frees what it holds when its thread ends, after whatever was used in the thread later than it.
struct FreedLate {
  ~FreedLate() {
    for (void* block : blocks) FreeBlock(block);
  }
  std::vector<void*> blocks;
};

TEST(MemoryBlock, EndingThreadsKeepNone) {
  constexpr int kThreads = 100;
  const auto one_thread = [] {
    thread_local FreedLate late;
    late.blocks.clear();  // makes it, before the thread's list
    for (int i = 0; i < 12; ++i) late.blocks.push_back(NewBlock(64 << 10));
    FreeBlock(NewBlock(64));
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

TEST(MemoryBlock, ClaimsAreReleasedWhenTheBlockIsFreedAndNotWhenItIsReused) {
  ByteBudget budget(1 << 20);
  for (const size_t size : {size_t{100}, size_t{400} << 10}) {
    for (int i = 0; i < 3; ++i) {
      void* block = NewBlock(size);
      ASSERT_TRUE(budget.Claim(ByteBudget::Use::kTensors, 70));
      HandClaimTo(block, &budget, ByteBudget::Use::kTensors, 70);
      ASSERT_TRUE(budget.Claim(ByteBudget::Use::kTensors, 30));
      HandClaimTo(block, &budget, ByteBudget::Use::kTensors, 30);
      EXPECT_EQ(budget.in_use(ByteBudget::Use::kTensors), 100);
      std::thread([&] { FreeBlock(block); }).join();
      EXPECT_EQ(budget.in_use(), 0);
      FreeBlock(NewBlock(size));
      EXPECT_EQ(budget.in_use(), 0) << "a block that is used again has no claim of its former use";
    }
  }
}

}  // namespace
}  // namespace processor
