// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/deadline_reaper.h"

#include <gtest/gtest.h>
#include <time.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "src/runtime/deadline.h"
#include "src/runtime/stats.h"

namespace processor {
namespace {

int64_t NowUs() { return NowNs() / 1000; }

// Collects the ids that expire, and when.
class Expired {
 public:
  void Add(uint64_t id) {
    std::lock_guard<std::mutex> lock(mutex_);
    ids_.push_back(id);
    times_us_.push_back(NowUs());
    wake_.notify_all();
  }
  std::vector<uint64_t> WaitFor(size_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    wake_.wait_for(lock, std::chrono::seconds(10), [&] { return ids_.size() >= count; });
    return ids_;
  }
  int64_t time_us(size_t index) {
    std::lock_guard<std::mutex> lock(mutex_);
    return times_us_.at(index);
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<uint64_t> ids_;
  std::vector<int64_t> times_us_;
};

TEST(DeadlinePoint, DoesNotOverflow) {
  const auto now = std::chrono::steady_clock::now();
  EXPECT_GT(DeadlinePoint(INT64_MAX), now + std::chrono::hours(24 * 365));
  EXPECT_LT(DeadlinePoint(INT64_MIN), now);
  EXPECT_LE(std::chrono::abs(DeadlinePoint(NowUs()) - now), std::chrono::seconds(5));
}

TEST(DeadlineReaper, ExpiresInTheOrderOfDeadlinesAndNotBefore) {
  Expired expired;
  DeadlineReaper reaper([&](uint64_t id) { expired.Add(id); });
  const int64_t now = NowUs();
  reaper.Add(now + 90000, 3);
  reaper.Add(now + 30000, 1);
  reaper.Add(now + 60000, 2);
  reaper.Add(now - 5, 0);  // past already
  EXPECT_EQ(expired.WaitFor(4), (std::vector<uint64_t>{0, 1, 2, 3}));
  for (size_t i = 1; i <= 3; ++i) EXPECT_GE(expired.time_us(i), now + 30000 * static_cast<int64_t>(i));
  EXPECT_LT(expired.time_us(3), now + 5000000);
  EXPECT_EQ(reaper.size(), 0u);
}

TEST(DeadlineReaper, AnEarlierDeadlineWakesTheThread) {
  Expired expired;
  DeadlineReaper reaper([&](uint64_t id) { expired.Add(id); });
  reaper.Add(NowUs() + 3600000000, 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  reaper.Add(NowUs() + 10000, 2);
  EXPECT_EQ(expired.WaitFor(1), std::vector<uint64_t>{2});
}

TEST(DeadlineReaper, ForgetsWhatHasEnded) {
  Expired expired;
  DeadlineReaper reaper([&](uint64_t id) { expired.Add(id); });
  const int64_t far = NowUs() + 3600000000;
  for (uint64_t id = 0; id < 1000; ++id) {
    reaper.Add(far, id);
    reaper.Remove(far, id);
  }
  EXPECT_EQ(reaper.size(), 0u);
  reaper.Remove(far, 5);  // not there any more: nothing happens
  const int64_t soon = NowUs() + 20000;
  reaper.Add(soon, 7);
  reaper.Add(soon, 8);
  reaper.Remove(soon, 7);
  EXPECT_EQ(expired.WaitFor(1), std::vector<uint64_t>{8});
}

TEST(DeadlineReaper, NeverIsNotNow) {
  Expired expired;
  DeadlineReaper reaper([&](uint64_t id) { expired.Add(id); });
  timespec before, after;
  reaper.Add(INT64_MAX, 1);
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
  const double cpu_seconds =
      static_cast<double>(after.tv_sec - before.tv_sec) + 1e-9 * static_cast<double>(after.tv_nsec - before.tv_nsec);
  EXPECT_LT(cpu_seconds, 0.1) << "the thread spins";
  reaper.Stop();
  EXPECT_TRUE(expired.WaitFor(0).empty());
}

TEST(DeadlineReaper, StopsWithDeadlinesLeftAndTakesNoMore) {
  Expired expired;
  DeadlineReaper reaper([&](uint64_t id) { expired.Add(id); });
  reaper.Add(NowUs() + 3600000000, 1);
  reaper.Stop();
  reaper.Stop();
  reaper.Add(NowUs() - 1, 2);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_TRUE(expired.WaitFor(0).empty());
}

TEST(DeadlineReaper, TakesDeadlinesFromManyThreads) {
  Expired expired;
  DeadlineReaper reaper([&](uint64_t id) { expired.Add(id); });
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 200; ++i) {
        const uint64_t id = t * 1000 + i;
        const int64_t deadline = NowUs() + (i % 2 == 0 ? 1000 : 3600000000);
        reaper.Add(deadline, id);
        if (i % 2 == 1) reaper.Remove(deadline, id);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(expired.WaitFor(800).size(), 800u);
  EXPECT_EQ(reaper.size(), 0u);
}

}  // namespace
}  // namespace processor
