// SPDX-License-Identifier: Apache-2.0
#include "src/base/mapped_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "gtest/gtest.h"

namespace processor {
namespace {

constexpr size_t kPage = 4096;

// Returns whether the page at an address is mapped.
bool PageIsMapped(const void* address) {
  const auto page = reinterpret_cast<uintptr_t>(address) / kPage * kPage;
  unsigned char in_memory;
  return mincore(reinterpret_cast<void*>(page), 1, &in_memory) == 0 || errno != ENOMEM;
}

TEST(MappedMemory, IsAlignedAndHoldsZerosAndTakesEveryByte) {
  for (const size_t bytes : {size_t{1}, size_t{4096}, size_t{100001}, size_t{3} << 20}) {
    for (const size_t alignment : {size_t{64}, size_t{4096}, size_t{2} << 20}) {
      auto* memory = static_cast<unsigned char*>(MapMemory(bytes, alignment));
      ASSERT_NE(memory, nullptr) << bytes;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % alignment, 0u) << bytes;
      EXPECT_TRUE(std::all_of(memory, memory + bytes, [](unsigned char byte) { return byte == 0; })) << bytes;
      std::memset(memory, 1, bytes);
      UnmapMemory(memory, bytes);
    }
  }
}

TEST(MappedMemory, GivesEveryPageBack) {
  const size_t bytes = (size_t{1} << 20) + 1;
  auto* memory = static_cast<unsigned char*>(MapMemory(bytes, size_t{2} << 20));
  ASSERT_NE(memory, nullptr);
  EXPECT_TRUE(PageIsMapped(memory) && PageIsMapped(memory + bytes - 1));
  UnmapMemory(memory, bytes);
  EXPECT_FALSE(PageIsMapped(memory) || PageIsMapped(memory + bytes - 1));
}

TEST(MappedMemory, ReturnsNullForImpossibleSizes) {
  EXPECT_EQ(MapMemory(SIZE_MAX - 100, 64), nullptr);
  EXPECT_EQ(MapMemory(size_t{1} << 60, 64), nullptr);
}

}  // namespace
}  // namespace processor
