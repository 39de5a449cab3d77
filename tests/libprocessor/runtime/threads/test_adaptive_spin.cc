// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/threads/adaptive_spin.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "src/runtime/stats/stats.h"
#include "src/runtime/threads/cpuset.h"

namespace processor {
namespace {

constexpr int64_t kShortNs = AdaptiveSpin::kMostNs / 10;

void LearnOften(AdaptiveSpin* spin, int64_t waited_ns) {
  for (int i = 0; i < 50; ++i) spin->Learn(waited_ns);
}

// The kernel may take the CPU away during a test, after which the next waits do not spin.
bool PaysSoon(AdaptiveSpin* spin) {
  for (int i = 0; i < 1000; ++i) {
    if (spin->Pays()) return true;
  }
  return false;
}

TEST(AdaptiveSpin, PaysOnceWaitsAreShort) {
  AdaptiveSpin spin;
  EXPECT_FALSE(PaysSoon(&spin)) << "nothing is known";
  LearnOften(&spin, kShortNs);
  EXPECT_TRUE(PaysSoon(&spin));
}

TEST(AdaptiveSpin, DoesNotPayAtLowLoad) {
  AdaptiveSpin spin;
  LearnOften(&spin, kShortNs);
  LearnOften(&spin, 2 * AdaptiveSpin::kMostNs);
  EXPECT_FALSE(PaysSoon(&spin));
}

TEST(AdaptiveSpin, PaysAfterOneLongWaitAmongShortOnes) {
  AdaptiveSpin spin;
  LearnOften(&spin, kShortNs);
  spin.Learn(INT64_MAX);
  EXPECT_TRUE(PaysSoon(&spin));
}

TEST(AdaptiveSpin, SpinsUntilReadyOrGivesUp) {
  AdaptiveSpin spin;
  int looks = 0;
  EXPECT_TRUE(spin.Spin([&] { return ++looks == 5; }));
  const int64_t begin_ns = NowNs();
  EXPECT_FALSE(spin.Spin([] { return false; }));
  EXPECT_GE(NowNs() - begin_ns, AdaptiveSpin::kMostNs / 5);
}

// Returns how many of 3,000 short waits spin in vain on the first CPU.
int CountSpins() {
  constexpr int kWaits = 3000;
  int spins = 0;
  std::thread([&] {
    PinThread(0, {AllowedCpus().front()});
    AdaptiveSpin spin;
    LearnOften(&spin, kShortNs);
    for (int i = 0; i < kWaits; ++i) {
      if (!spin.Pays()) continue;
      spin.Spin([] { return false; });
      ++spins;
    }
  }).join();
  return spins;
}

TEST(AdaptiveSpin, GivesUpWhileAnotherThreadWantsTheCpu) {
  std::atomic<bool> stop{false};
  std::thread other([&] {
    PinThread(0, {AllowedCpus().front()});
    while (!stop) {
    }
  });
  const int spins = CountSpins();
  stop = true;
  other.join();
  EXPECT_LT(spins, 1000);
}

}  // namespace
}  // namespace processor
