// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/version/output_subsets.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace processor {
namespace {

// Waits until the callable has been made in the background.
int FoundSoon(OutputSubsets& subsets, int signature, const std::vector<int>& outputs) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  int callable = -1;
  while (callable < 0 && std::chrono::steady_clock::now() < end) {
    callable = subsets.Find(signature, outputs);
    std::this_thread::yield();
  }
  return callable;
}

TEST(OutputSubsets, CallablesAreMadeOnAnotherThreadAndThenFound) {
  std::atomic<int> calls{0};
  std::thread::id maker;
  OutputSubsets subsets(3, [&](int, int, const std::vector<int>&) {
    maker = std::this_thread::get_id();
    ++calls;
    return absl::OkStatus();
  });
  EXPECT_EQ(subsets.Find(0, {1, 2}), -1);
  EXPECT_EQ(FoundSoon(subsets, 0, {1, 2}), 3);
  EXPECT_NE(maker, std::this_thread::get_id());
  EXPECT_EQ(FoundSoon(subsets, 1, {1, 2}), 4) << "of another signature";
  EXPECT_EQ(FoundSoon(subsets, 0, {1}), 5);
  EXPECT_EQ(subsets.Find(0, {1, 2}), 3);
  EXPECT_EQ(calls, 3);
}

TEST(OutputSubsets, RequestsDoNotWaitWhileACallableIsMade) {
  std::atomic<bool> go{false};
  OutputSubsets subsets(0, [&](int, int, const std::vector<int>&) {
    while (!go) std::this_thread::yield();
    return absl::OkStatus();
  });
  for (int i = 0; i < 100; ++i) EXPECT_EQ(subsets.Find(0, {i % 10}), -1);
  go = true;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(FoundSoon(subsets, 0, {i}), i);
}

TEST(OutputSubsets, FailuresAreNotFoundAndToldToWhoCannotWait) {
  OutputSubsets subsets(0, [](int, int, const std::vector<int>& outputs) {
    return outputs.size() == 1 ? absl::OkStatus() : absl::InternalError("two");
  });
  int callable = -7;
  EXPECT_EQ(subsets.MakeNow(0, {1, 2}, &callable).message(), "two");
  EXPECT_EQ(callable, -7);
  EXPECT_EQ(subsets.Find(0, {1, 2}), -1);
  EXPECT_TRUE(subsets.MakeNow(0, {5}, &callable).ok());
  EXPECT_EQ(callable, 1);
  EXPECT_EQ(subsets.Find(0, {5}), 1);
}

TEST(OutputSubsets, NumberOfSubsetsIsBounded) {
  OutputSubsets subsets(0, [](int, int, const std::vector<int>&) { return absl::OkStatus(); });
  int callable = -1;
  for (size_t i = 0; i < OutputSubsets::kMost; ++i) {
    ASSERT_TRUE(subsets.MakeNow(0, {static_cast<int>(i)}, &callable).ok());
  }
  EXPECT_TRUE(absl::IsResourceExhausted(subsets.MakeNow(0, {1000}, &callable)));
  EXPECT_EQ(subsets.Find(0, {1000}), -1);
  EXPECT_EQ(subsets.Find(0, {0}), 0) << "those that were made stay";
}

TEST(OutputSubsets, EndsWhileCallablesAreWanted) {
  for (int round = 0; round < 50; ++round) {
    OutputSubsets subsets(0, [](int, int, const std::vector<int>&) { return absl::OkStatus(); });
    for (int i = 0; i < 8; ++i) subsets.Find(0, {i});
  }
}

}  // namespace
}  // namespace processor
