// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/threads/request_threads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "sleep_ms.h"

namespace processor {
namespace {

// Runs a function for each request.
class Queue : public RequestThreads::Source {
 public:
  explicit Queue(std::function<void()> body) : body_(std::move(body)) {}
  void RunNext() noexcept override { body_(); }

 private:
  const std::function<void()> body_;
};

// Holds threads until it is opened.
class Gate {
 public:
  void Pass() {
    std::unique_lock<std::mutex> lock(mutex_);
    ++inside_;
    most_ = std::max(most_, inside_);
    wake_.wait(lock, [this] { return open_; });
    --inside_;
  }
  void Open() {
    std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    wake_.notify_all();
  }
  int inside() {
    std::lock_guard<std::mutex> lock(mutex_);
    return inside_;
  }
  int most() {
    std::lock_guard<std::mutex> lock(mutex_);
    return most_;
  }
  bool WaitFor(int inside) {
    for (int i = 0; i < 5000 && this->inside() < inside; ++i) SleepMs(1);
    return this->inside() >= inside;
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool open_ = false;
  int inside_ = 0, most_ = 0;
};

TEST(RequestThreads, LimitsRunningRequestsOverAllQueues) {
  RequestThreads threads(2, 2);
  Gate gate;
  RequestThreads::Share share, other_share;
  Queue queue([&] { gate.Pass(); }), other([&] { gate.Pass(); });
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(threads.Call(&queue, &share).ok());
    ASSERT_TRUE(threads.Call(&other, &other_share).ok());
  }
  ASSERT_TRUE(gate.WaitFor(2));
  SleepMs(60);
  EXPECT_EQ(gate.most(), 2);
  EXPECT_LE(threads.threads(), 3u);
  gate.Open();
  threads.Forget(&queue);
  threads.Forget(&other);
}

TEST(RequestThreads, ManyQueuesNeedNoMoreThreads) {
  RequestThreads threads(2, 2);
  std::atomic<int> runs{0};
  std::vector<std::unique_ptr<Queue>> queues;
  RequestThreads::Share share;
  for (int i = 0; i < 60; ++i) queues.push_back(std::make_unique<Queue>([&] { ++runs; }));
  for (int round = 0; round < 20; ++round) {
    for (auto& queue : queues) ASSERT_TRUE(threads.Call(queue.get(), &share).ok());
  }
  for (int i = 0; i < 5000 && runs < 1200; ++i) SleepMs(1);
  EXPECT_EQ(runs, 1200);
  EXPECT_LE(threads.threads(), 3u);
  for (auto& queue : queues) threads.Forget(queue.get());
}

TEST(RequestThreads, RunsMoreRequestsIfAllRunningOnesAreSlow) {
  RequestThreads threads(1, 6);
  Gate gate;
  RequestThreads::Share share;
  Queue slow([&] { gate.Pass(); });
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(threads.Call(&slow, &share).ok());
  ASSERT_TRUE(gate.WaitFor(1));
  EXPECT_TRUE(gate.WaitFor(3));
  SleepMs(100);
  EXPECT_EQ(gate.most(), 3) << "half of them, so that others have room";
  gate.Open();
  threads.Forget(&slow);
}

TEST(RequestThreads, SlowRequestsDoNotBlockOtherModels) {
  RequestThreads threads(2, 8);
  Gate gate;
  RequestThreads::Share slow_share, quick_share;
  Queue slow([&] { gate.Pass(); });
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(threads.Call(&slow, &slow_share).ok());
  ASSERT_TRUE(gate.WaitFor(4));
  std::atomic<int> runs{0};
  Queue quick([&] { ++runs; });
  int soon = 0;
  for (int i = 1; i <= 200; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_TRUE(threads.Call(&quick, &quick_share).ok());
    for (int turn = 0; turn < 50'000 && runs < i; ++turn) std::this_thread::sleep_for(std::chrono::microseconds(100));
    ASSERT_EQ(runs, i);
    soon += std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(15) ? 1 : 0;
  }
  // Each of them would wait for 20 ms, if the slow ones counted; on a busy machine some wait for a CPU.
  EXPECT_GT(soon, 20);
  EXPECT_EQ(gate.inside(), 4);
  gate.Open();
  threads.Forget(&slow);
  threads.Forget(&quick);
}

TEST(RequestThreads, EachModelMayHaveOneRunning) {
  RequestThreads threads(1, 2);
  Gate gate;
  std::vector<std::unique_ptr<RequestThreads::Share>> shares;
  Queue slow([&] { gate.Pass(); });
  for (int i = 0; i < 6; ++i) {
    shares.push_back(std::make_unique<RequestThreads::Share>());
    for (int call = 0; call < 3; ++call) ASSERT_TRUE(threads.Call(&slow, shares.back().get()).ok());
  }
  ASSERT_TRUE(gate.WaitFor(6));
  SleepMs(60);
  EXPECT_EQ(gate.most(), 6);
  gate.Open();
  threads.Forget(&slow);
}

TEST(RequestThreads, AQuickRequestRunsBesideSlowOnes) {
  RequestThreads threads(1, 8);
  Gate gate;
  RequestThreads::Share share;
  Queue slow([&] { gate.Pass(); });
  std::atomic<int> runs{0};
  Queue quick([&] { ++runs; });
  for (int slow_ones = 1; slow_ones < 4; ++slow_ones) {
    ASSERT_TRUE(threads.Call(&slow, &share).ok());
    ASSERT_TRUE(gate.WaitFor(slow_ones));
    // All that there were to run have begun, so that each thread may be held by a slow one.
    ASSERT_TRUE(threads.Call(&quick, &share).ok());
    for (int i = 0; i < 5000 && runs < slow_ones; ++i) SleepMs(1);
    EXPECT_EQ(runs, slow_ones) << slow_ones << " slow ones";
  }
  gate.Open();
  threads.Forget(&slow);
  threads.Forget(&quick);
}

TEST(RequestThreads, ServesModelWithFewestRunningRequestsNext) {
  RequestThreads threads(2, 2);
  Gate gate;
  std::mutex mutex;
  std::vector<char> order;
  const auto note = [&](char name) {
    std::lock_guard<std::mutex> lock(mutex);
    order.push_back(name);
  };
  const auto noted = [&] {
    std::lock_guard<std::mutex> lock(mutex);
    return order.size();
  };
  RequestThreads::Share greedy_share, modest_share;
  Queue holding([&] { gate.Pass(); });
  Queue greedy([&] {
    note('g');
    SleepMs(5);
  });
  Queue modest([&] { note('m'); });
  // One of the two threads is the greedy model's already.
  ASSERT_TRUE(threads.Call(&holding, &greedy_share).ok());
  ASSERT_TRUE(gate.WaitFor(1));
  RequestThreads::Share blocking_share;
  Gate blocking_gate;
  Queue blocking([&] { blocking_gate.Pass(); });
  ASSERT_TRUE(threads.Call(&blocking, &blocking_share).ok());
  ASSERT_TRUE(blocking_gate.WaitFor(1));
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(threads.Call(&greedy, &greedy_share).ok());
  ASSERT_TRUE(threads.Call(&modest, &modest_share).ok());
  blocking_gate.Open();
  for (int i = 0; i < 5000 && noted() < 6; ++i) SleepMs(1);
  gate.Open();
  for (Queue* queue : {&holding, &greedy, &modest, &blocking}) threads.Forget(queue);
  ASSERT_EQ(order.size(), 6u);
  EXPECT_EQ(order.front(), 'm') << "though it came last";
}

TEST(RequestThreads, ForgottenQueueIsNotCalledAgain) {
  for (int i = 0; i < 200; ++i) {
    RequestThreads threads(2, 2);
    auto alive = std::make_unique<std::atomic<int>>(0);
    RequestThreads::Share share;
    auto queue = std::make_unique<Queue>([raw = alive.get()] { ++*raw; });
    for (int call = 0; call < 20; ++call) ASSERT_TRUE(threads.Call(queue.get(), &share).ok());
    threads.Forget(queue.get());
    queue.reset();
    alive.reset();
  }
}

}  // namespace
}  // namespace processor
