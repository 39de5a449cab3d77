// SPDX-License-Identifier: Apache-2.0
// How a batcher makes up batches by CPU.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "batcher_fixture.h"
#include "src/runtime/threads/cpuset.h"

namespace processor {
namespace {

using Chains = std::vector<std::vector<uint64_t>>;

class BatchesByCpu : public BatcherTest {
 protected:
  void BeginByCpu(int sessions) { Begin(ZeroWait(), sessions, /*max_waiting=*/1000, /*by_cpu=*/true); }

  // A call whose thread has run its request, and does not write the response yet.
  Call* CallThatReturnsSlowly(uint64_t id) {
    auto entry = std::make_unique<FakeEntry>(id);
    entry->hold_return = true;
    Call* const call = CallWith(std::move(entry));
    EXPECT_TRUE(Eventually([&] { return call->entry->runs == 1; }));
    return call;
  }

  const CpuSet cpus_ = AllowedCpus();
};

TEST_F(BatchesByCpu, ARequestWaitsForThreadsThatReturnToItsCpu) {
  BeginByCpu(/*sessions=*/2);
  CallFrom(cpus_[0]);
  Call* const first = CallThatReturnsSlowly(1);
  Call* const second = CallOne(2);
  ASSERT_TRUE(Waiting(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(second->entry->runs, 0) << "it has run alone, though others may send requests";
  first->entry->hold_return = false;
  ASSERT_TRUE(Ended({first, second}));
  EXPECT_EQ(chains(), (Chains{{1}, {2}}));
}

TEST_F(BatchesByCpu, ARequestOfAnotherCpuDoesNotWaitForThem) {
  if (cpus_.size() < 2) GTEST_SKIP() << "there is one CPU, expected two";
  BeginByCpu(/*sessions=*/2);
  CallFrom(cpus_[0]);
  Call* const first = CallThatReturnsSlowly(1);
  CallFrom(cpus_[1]);
  ASSERT_TRUE(Ended({CallOne(2)}));
  first->entry->hold_return = false;
  ASSERT_TRUE(Ended({first}));
}

TEST_F(BatchesByCpu, ABatchTakesRequestsOfItsCpuFirst) {
  if (cpus_.size() < 2) GTEST_SKIP() << "there is one CPU, expected two";
  BeginByCpu(/*sessions=*/2);
  Hold();
  std::vector<Call*> calls;
  for (uint64_t id = 1; id <= 2; ++id) {
    CallFrom(cpus_[id - 1]);
    calls.push_back(CallOne(id));
    ASSERT_TRUE(Inside(static_cast<int>(id)));
  }
  for (uint64_t id = 3; id <= 8; ++id) {
    CallFrom(cpus_[id % 2]);
    calls.push_back(CallOne(id));
    ASSERT_TRUE(Waiting(id - 2));
  }
  Release();
  ASSERT_TRUE(Ended(calls));
  for (const std::vector<uint64_t>& chain : chains()) {
    if (chain.size() > 1) {
      EXPECT_EQ(chain[0] % 2, chain[1] % 2);
    }
  }
}

TEST_F(BatchesByCpu, RequestsThatOthersOutnumberAreNotPassedOver) {
  if (cpus_.size() < 2) GTEST_SKIP() << "there is one CPU, expected two";
  BeginByCpu(/*sessions=*/2);
  std::atomic<bool> stop{false};
  std::vector<std::thread> crowd;
  for (int i = 0; i < 8; ++i) {
    crowd.emplace_back([&, i] {
      CpuMask({cpus_[0]}).PinCaller();
      while (!stop) {
        FakeEntry entry(static_cast<uint64_t>(100 + i));
        EXPECT_TRUE(batcher_->Run(entry, 0).ok());
      }
    });
  }
  CallFrom(cpus_[1]);
  std::vector<Call*> calls;
  for (uint64_t id = 1; id <= 50; ++id) {
    calls.push_back(CallOne(id));
    ASSERT_TRUE(Ended({calls.back()})) << id;
  }
  stop = true;
  for (std::thread& thread : crowd) thread.join();
}

}  // namespace
}  // namespace processor
