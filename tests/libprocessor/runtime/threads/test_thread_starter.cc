// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/threads/thread_starter.h"

#include <gtest/gtest.h>

#include <future>
#include <stdexcept>
#include <thread>
#include <vector>

#include "src/runtime/threads/cpuset.h"
#include "src/runtime/threads/pinned_pool.h"

namespace processor {
namespace {

TEST(ThreadStarter, RunsFunctionsSequentiallyOnItsThread) {
  ThreadStarter starter;
  std::thread::id id;
  starter.Run([&] { id = std::this_thread::get_id(); });
  EXPECT_NE(id, std::this_thread::get_id());
  int runs = 0;  // not atomic: the starter sees to that
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) {
        starter.Run([&] {
          EXPECT_EQ(std::this_thread::get_id(), id);
          ++runs;
        });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(runs, 400);
}

TEST(ThreadStarter, RethrowsExceptions) {
  ThreadStarter starter;
  EXPECT_THROW(starter.Run([] { throw std::runtime_error("no thread"); }), std::runtime_error);
  int runs = 0;
  starter.Run([&] { ++runs; });
  EXPECT_EQ(runs, 1);
}

TEST(ThreadStarter, StartsServingThreadsWithinScope) {
  ThreadStarter starter;
  const std::thread::id here = std::this_thread::get_id();
  std::thread::id id;
  const auto note = [&] { id = std::this_thread::get_id(); };
  StartServingThreads(note);
  EXPECT_EQ(id, here);
  {
    const StartThreadsElsewhere elsewhere(&starter);
    StartServingThreads(note);
    EXPECT_NE(id, here);
  }
  StartServingThreads(note);
  EXPECT_EQ(id, here);
}

TEST(ThreadStarter, PoolThreadsDoNotInheritFromConstructingThread) {
  const CpuSet allowed = AllowedCpus();
  if (allowed.size() < 2) GTEST_SKIP() << "needs two CPUs";
  ThreadStarter starter;
  std::thread([&] {
    PinThread(0, {allowed.front()});
    const StartThreadsElsewhere elsewhere(&starter);
    // Made before the pool: its threads may still be at it when the value has come, and a sanitizer that does not see
    // TensorFlow's queue sees that they were started later.
    std::promise<CpuSet> cpus;
    PinnedPool pool("pool", 2, CpuSet());
    pool.Schedule([&] { cpus.set_value(CpusOfThread(0)); });
    EXPECT_EQ(cpus.get_future().get(), allowed);
    EXPECT_EQ(CpusOfThread(0), CpuSet{allowed.front()});
  }).join();
}

}  // namespace
}  // namespace processor
