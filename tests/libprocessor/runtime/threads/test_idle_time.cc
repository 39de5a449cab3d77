// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "src/runtime/threads/idle_time.h"

namespace processor {
namespace {

constexpr const char* kStat =
    "cpu  10 20 30 40 50 60 70 80 90 100\n"
    "cpu0 1 2 3 100 5 6 7 8 9 10\n"
    "cpu1 10 20 30 1000 50 60 70 80 90 100\n"
    "cpu12 1 1 1 7 0\n"
    "intr 12 0 9\ncpus 1\ncpu x\n";

TEST(IdleTimeTest, SumsTicksOfNamedCpus) {
  EXPECT_EQ(SumTicks(kStat, {0}).idle, 105);
  EXPECT_EQ(SumTicks(kStat, {0}).total, 1 + 2 + 3 + 100 + 5 + 6 + 7 + 8) << "guests are in user";
  EXPECT_EQ(SumTicks(kStat, {0, 1}).idle, 105 + 1050);
  EXPECT_EQ(SumTicks(kStat, {12}).total, 10);
  EXPECT_EQ(SumTicks(kStat, {3}).total, 0);
  EXPECT_EQ(SumTicks("", {0}).total, 0);
}

TEST(IdleTimeTest, BusyCpusAreNotIdle) {
  const CpuSet cpus = AllowedCpus();
  std::atomic<bool> done{false};
  std::vector<std::thread> busy;
  for (const int cpu : cpus) {
    busy.emplace_back([&done, cpu] {
      PinThread(0, {cpu});
      while (!done.load()) {
      }
    });
  }
  EXPECT_LT(IdleShare(cpus, std::chrono::milliseconds(300)), 0.2);
  done = true;
  for (std::thread& thread : busy) thread.join();
}

TEST(IdleTimeTest, UnknownCpusCountAsIdle) { EXPECT_EQ(IdleShare({1 << 20}, std::chrono::milliseconds(1)), 1); }

}  // namespace
}  // namespace processor
