// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/executor/scratch_allocator.h"

#include "gtest/gtest.h"
#include "src/base/byte_budget.h"

namespace processor {
namespace {

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
