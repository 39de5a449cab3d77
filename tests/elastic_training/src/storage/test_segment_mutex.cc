// SPDX-License-Identifier: Apache-2.0
#include "src/storage/segment_mutex.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <vector>

namespace elastic_training {
namespace {

TEST(SegmentMutex, HasOneWriterOrManyReaders) {
  SegmentMutex mutex;
  mutex.lock_shared();
  EXPECT_TRUE(mutex.try_lock_shared());
  EXPECT_FALSE(mutex.try_lock());
  mutex.unlock_shared();
  EXPECT_FALSE(mutex.try_lock());
  mutex.unlock_shared();
  EXPECT_TRUE(mutex.try_lock());
  EXPECT_FALSE(mutex.try_lock());
  EXPECT_FALSE(mutex.try_lock_shared());
  mutex.unlock();
  EXPECT_TRUE(mutex.try_lock_shared());
  mutex.unlock_shared();
}

// Every thread must get the lock each time: one that is not woken would wait for ever. The numbers are plain, so that a
// second writer, or a reader beside a writer, is seen, by ThreadSanitizer also if nothing comes of it.
TEST(SegmentMutex, WakesAllThatWait) {
  constexpr int kWriters = 3, kReaders = 3, kTurns = 20'000;
  SegmentMutex mutex;
  int64_t first = 0, second = 0;
  std::atomic<int> torn{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kWriters; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kTurns; ++i) {
        const std::lock_guard<SegmentMutex> lock(mutex);
        ++first;
        if (i % 64 == 0) std::this_thread::yield();
        ++second;
      }
    });
  }
  for (int t = 0; t < kReaders; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kTurns; ++i) {
        const std::shared_lock<SegmentMutex> lock(mutex);
        const int64_t before = first;
        if (i % 64 == 0) std::this_thread::yield();
        torn += before != second;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(first, kWriters * kTurns);
  EXPECT_EQ(second, kWriters * kTurns);
  EXPECT_EQ(torn, 0);
}

}  // namespace
}  // namespace elastic_training
