// SPDX-License-Identifier: Apache-2.0
#include "src/host/request_log/sample_queue.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace processor {
namespace {

std::unique_ptr<SampledRequest> Sample(std::string_view bytes, int64_t version = 0) {
  auto sample = std::make_unique<SampledRequest>();
  sample->request.Assign(bytes);
  sample->version = version;
  return sample;
}

TEST(SampleQueue, ReturnsRequestsInOrderOfArrival) {
  SampleQueue queue(10, 100);
  for (int64_t i = 0; i < 5; ++i) {
    auto sample = Sample("x", i);
    ASSERT_TRUE(queue.Push(&sample));
    EXPECT_EQ(sample, nullptr);
  }
  SampledRequest* next = queue.Take();
  for (int64_t i = 0; i < 5; ++i) {
    ASSERT_NE(next, nullptr);
    const std::unique_ptr<SampledRequest> taken(std::exchange(next, next->next));
    EXPECT_EQ(taken->version, i);
  }
  EXPECT_EQ(next, nullptr);
  EXPECT_EQ(queue.size(), 5) << "they are not done with";
}

TEST(SampleQueue, IsBoundedByNumberAndBytes) {
  SampleQueue queue(2, 100);
  auto first = Sample(std::string(60, 'x')), large = Sample(std::string(50, 'x')), small = Sample("x");
  ASSERT_TRUE(queue.Push(&first));
  EXPECT_FALSE(queue.HasRoom(50));
  EXPECT_FALSE(queue.Push(&large));
  EXPECT_NE(large, nullptr) << "stays with whoever has it";
  ASSERT_TRUE(queue.Push(&small));
  auto third = Sample("");
  EXPECT_FALSE(queue.HasRoom(0));
  EXPECT_FALSE(queue.Push(&third));
  EXPECT_EQ(queue.size(), 2);
  const std::unique_ptr<SampledRequest> older(queue.Take()), newer(older->next);
  queue.Release(60);
  EXPECT_TRUE(queue.Push(&large));
}

TEST(SampleQueue, WakesWithoutRequests) {
  SampleQueue queue(1, 1);
  std::thread waits([&] {
    queue.Wait();
    EXPECT_EQ(queue.Take(), nullptr);
  });
  queue.Wake();
  waits.join();
}

TEST(SampleQueue, LosesNothingBetweenThreads) {
  constexpr int kThreads = 4, kEach = 5000;
  SampleQueue queue(kThreads * kEach, 1 << 20);
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&queue, i] {
      for (int j = 0; j < kEach; ++j) {
        auto sample = Sample("x", i * kEach + j);
        EXPECT_TRUE(queue.Push(&sample));
      }
    });
  }
  std::vector<int64_t> last(kThreads, -1);
  for (int taken = 0; taken < kThreads * kEach;) {
    queue.Wait();
    for (SampledRequest* next = queue.Take(); next != nullptr; ++taken) {
      const std::unique_ptr<SampledRequest> sample(std::exchange(next, next->next));
      int64_t& before = last[static_cast<size_t>(sample->version / kEach)];
      EXPECT_LT(before, sample->version) << "those of one thread come in its order";
      before = sample->version;
      queue.Release(sample->request.size());
    }
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(queue.size(), 0);
}

}  // namespace
}  // namespace processor
