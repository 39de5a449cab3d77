// SPDX-License-Identifier: Apache-2.0
#include "src/base/byte_budget.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>
#include <vector>

#include "nlohmann/json.hpp"

namespace processor {
namespace {

using Use = ByteBudget::Use;
constexpr int64_t kMiB = int64_t{1} << 20;

TEST(ByteBudget, LargeClaimsLeaveRoomForSmallOnes) {
  ByteBudget budget(16 * kMiB);
  EXPECT_TRUE(budget.Claim(Use::kBody, 8 * kMiB));
  EXPECT_FALSE(budget.Claim(Use::kBody, ByteBudget::kSmallBody + 1)) << "bodies fill half";
  EXPECT_FALSE(budget.Claim(Use::kBody, 1, /*held=*/ByteBudget::kSmallBody)) << "also piece by piece";
  EXPECT_TRUE(budget.Claim(Use::kBody, ByteBudget::kSmallBody));
  EXPECT_TRUE(budget.Claim(Use::kTensors, 5 * kMiB));
  EXPECT_FALSE(budget.Claim(Use::kRun, 2 * kMiB)) << "what is large leaves an eighth";
  EXPECT_TRUE(budget.Claim(Use::kRun, kMiB));
  EXPECT_TRUE(budget.Claim(Use::kAnswer, kMiB));
  EXPECT_FALSE(budget.Claim(Use::kAnswer, kMiB));
  EXPECT_EQ(budget.in_use(), 15 * kMiB + ByteBudget::kSmallBody);
  EXPECT_EQ(budget.in_use(Use::kBody), 8 * kMiB + ByteBudget::kSmallBody);
  EXPECT_EQ(budget.refused(Use::kBody), 2u);
  EXPECT_EQ(budget.refused(Use::kRun), 1u);
  EXPECT_EQ(budget.refused(Use::kAnswer), 1u);
  budget.Release(Use::kTensors, 5 * kMiB);
  EXPECT_EQ(budget.peak(), 15 * kMiB + ByteBudget::kSmallBody);
  EXPECT_EQ(budget.in_use(Use::kTensors), 0);
}

TEST(ByteBudget, ReportsWhetherARequestMayBeRetried) {
  ByteBudget budget(16 * kMiB);
  EXPECT_TRUE(budget.Claim(Use::kTensors, 10 * kMiB));
  const absl::Status later = budget.Refusal(Use::kTensors, "input 'x'", 8 * kMiB);
  EXPECT_TRUE(absl::IsResourceExhausted(later)) << later;
  EXPECT_EQ(
      later.message(),
      "input 'x': 8388608 bytes of memory beside 10485760 of requests in flight, expected at most 14680064 in all "
      "(max_request_bytes_in_flight is 16777216)");
  const absl::Status never = budget.Refusal(Use::kTensors, "input 'x'", 8 * kMiB, 7 * kMiB);
  EXPECT_TRUE(absl::IsInvalidArgument(never)) << never;
  EXPECT_TRUE(absl::IsInvalidArgument(budget.Refusal(Use::kBody, "request", INT64_MAX / 2)));
}

TEST(ByteBudget, ClaimsEndWithTheirScope) {
  ByteBudget budget(kMiB);
  ByteClaim kept(Use::kAnswer, &budget);
  {
    ByteClaim claim(Use::kAnswer, &budget);
    EXPECT_TRUE(claim.Add("response", 1000).ok());
    EXPECT_TRUE(claim.Add("response", 2000).ok());
    EXPECT_FALSE(claim.Add("response", kMiB).ok());
    kept = std::move(claim);
  }
  EXPECT_EQ(budget.in_use(), 3000);
  ByteClaim moved(std::move(kept));
  moved.Release();
  moved.Release();
  EXPECT_EQ(budget.in_use(), 0);
}

TEST(ByteBudget, NeverHoldsMoreThanItsLimit) {
  ByteBudget budget(100 * 1000);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&budget] {
      for (int i = 0; i < 20000; ++i) {
        if (!budget.Claim(Use::kRun, 30 * 1000)) continue;
        EXPECT_LE(budget.in_use(), 100 * 1000);
        budget.Release(Use::kRun, 30 * 1000);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(budget.in_use(), 0);
  EXPECT_LE(budget.peak(), 100 * 1000);
}

TEST(ByteBudget, LimitIsSetForTheProcess) {
  const int64_t before = ByteBudget::Requests().limit();
  EXPECT_GE(before, 256 * kMiB);
  EXPECT_TRUE(absl::IsInvalidArgument(SetRequestBytes(1000)));
  EXPECT_TRUE(absl::IsInvalidArgument(SetRequestBytes(UINT64_MAX)));
  ASSERT_TRUE(SetRequestBytes(5 << 20).ok());
  EXPECT_EQ(ByteBudget::Requests().limit(), 5 * kMiB);
  EXPECT_EQ(ByteBudget::WarmUp().limit(), 5 * kMiB);
  EXPECT_EQ(RequestBytesJson()["limit"], 5 * kMiB);
  setenv("PROCESSOR_MAX_REQUEST_BYTES_IN_FLIGHT", "7000000", 1);
  ASSERT_TRUE(SetRequestBytes(0).ok());
  EXPECT_EQ(ByteBudget::Requests().limit(), 7000000);
  setenv("PROCESSOR_MAX_REQUEST_BYTES_IN_FLIGHT", "much", 1);
  EXPECT_EQ(DefaultRequestBytes(), before);
  unsetenv("PROCESSOR_MAX_REQUEST_BYTES_IN_FLIGHT");
  ASSERT_TRUE(SetRequestBytes(0).ok());
  EXPECT_EQ(ByteBudget::Requests().limit(), before);
}

}  // namespace
}  // namespace processor
