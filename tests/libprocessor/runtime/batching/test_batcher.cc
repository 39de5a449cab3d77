// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/batching/batcher.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "batcher_fixture.h"
#include "src/runtime/stats/stats.h"

namespace processor {
namespace {

using Chains = std::vector<std::vector<uint64_t>>;

TEST_F(BatcherTest, CallerRunsAtOnceIfASessionIsFree) {
  Begin(ZeroWait());
  for (uint64_t id = 1; id <= 3; ++id) {
    FakeEntry& entry = *Make(id);
    EXPECT_TRUE(batcher_->Run(entry, 0).ok());
    EXPECT_EQ(entry.runs, 1);
  }
  EXPECT_EQ(chains(), (Chains{{1}, {2}, {3}}));
}

TEST_F(BatcherTest, ThreadThatGetsAPlaceBatchesAllWaitingRequests) {
  Begin(ZeroWait());
  Hold();
  std::vector<Call*> calls = {CallOne(1)};
  ASSERT_TRUE(Inside(1));
  for (uint64_t id = 2; id <= 6; ++id) {
    calls.push_back(CallOne(id));
    ASSERT_TRUE(Waiting(id - 1));
  }
  Release();
  ASSERT_TRUE(Ended(calls));
  EXPECT_EQ(chains(), (Chains{{1}, {2, 3, 4, 5, 6}}));
  for (Call* call : calls) {
    EXPECT_TRUE(call->status.ok());
    EXPECT_EQ(call->entry->prepared, 1);
    EXPECT_EQ(call->entry->runs, 1);
  }
}

TEST_F(BatcherTest, BatchHasAtMostMaxRowsUnlessOneRequestHasMore) {
  Begin(ZeroWait(10));
  Hold();
  std::vector<Call*> calls = {CallOne(1)};
  ASSERT_TRUE(Inside(1));
  const int64_t rows[] = {6, 5, 4, 30, 1};
  for (int i = 0; i < 5; ++i) {
    calls.push_back(CallOne(2 + i, rows[i]));
    ASSERT_TRUE(Waiting(1 + i));
  }
  Release();
  ASSERT_TRUE(Ended(calls));
  // 6 + 4, then 5 + 1, then what is too large for company.
  EXPECT_EQ(chains(), (Chains{{1}, {2, 4}, {3, 6}, {5}}));
}

TEST_F(BatcherTest, RunsOtherKindsAndRequestsWithoutRowsSeparately) {
  Begin(ZeroWait());
  Hold();
  std::vector<Call*> calls = {CallOne(1)};
  ASSERT_TRUE(Inside(1));
  const uint64_t kinds[] = {7, 8, 7, 8, 7};
  const int64_t rows[] = {1, 1, 0, 1, 1};
  for (int i = 0; i < 5; ++i) {
    calls.push_back(CallOne(2 + i, rows[i], kinds[i]));
    ASSERT_TRUE(Waiting(1 + i));
  }
  Release();
  ASSERT_TRUE(Ended(calls));
  EXPECT_EQ(chains(), (Chains{{1}, {2, 6}, {3, 5}, {4}}));
}

TEST_F(BatcherTest, ALargerPriorityRunsFirst) {
  Begin(ZeroWait(1));
  Hold();
  std::vector<Call*> calls = {CallOne(1)};
  ASSERT_TRUE(Inside(1));
  const int32_t priorities[] = {0, 5, -3, 5};
  for (int i = 0; i < 4; ++i) {
    auto entry = std::make_unique<FakeEntry>(2 + i);
    entry->priority = priorities[i];
    calls.push_back(CallWith(std::move(entry)));
    ASSERT_TRUE(Waiting(1 + i));
  }
  Release();
  ASSERT_TRUE(Ended(calls));
  EXPECT_EQ(chains(), (Chains{{1}, {3}, {5}, {2}, {4}}));
}

TEST_F(BatcherTest, AMalformedRequestFailsAlone) {
  Begin(ZeroWait());
  FakeEntry& bad = *Make(1);
  bad.prepare_status = absl::InvalidArgumentError("bytes");
  EXPECT_TRUE(absl::IsInvalidArgument(batcher_->Run(bad, 0)));
  Hold();
  std::vector<Call*> calls = {CallOne(2)};
  ASSERT_TRUE(Inside(1)) << "the place was not given back";
  auto entry = std::make_unique<FakeEntry>(3);
  entry->prepare_status = absl::InvalidArgumentError("bytes");
  Call* const refused = CallWith(std::move(entry));
  ASSERT_TRUE(Ended({refused})) << "it must not wait";
  EXPECT_TRUE(absl::IsInvalidArgument(refused->status));
  FakeEntry& started = *Make(4);
  started.prepare_status = absl::InvalidArgumentError("bytes");
  FakeEntry& good = *Make(5);
  ASSERT_TRUE(batcher_->Start(&started, 0).ok());
  ASSERT_TRUE(batcher_->Start(&good, 0).ok());
  Release();
  EXPECT_TRUE(Eventually([&] { return good.told == 1 && started.fails == 1; }));
  EXPECT_EQ(started.runs, 0);
  ASSERT_TRUE(Ended(calls));
}

TEST_F(BatcherTest, ACallerStopsWaitingAtItsDeadline) {
  Begin(ZeroWait());
  Hold();
  Call* const running = CallOne(1);
  ASSERT_TRUE(Inside(1));
  auto entry = std::make_unique<FakeEntry>(2);
  entry->deadline_us = NowNs() / 1000 + 30000;
  Call* const late = CallWith(std::move(entry));
  ASSERT_TRUE(Ended({late}));
  EXPECT_TRUE(absl::IsDeadlineExceeded(late->status)) << late->status;
  EXPECT_EQ(late->entry->runs, 0);
  EXPECT_EQ(batcher_->waiting(), 0u);
  Release();
  ASSERT_TRUE(Ended({running}));
}

TEST_F(BatcherTest, StartedRequestsAreRunTogetherByAWorker) {
  Begin(ZeroWait());
  Hold();
  std::vector<FakeEntry*> entries;
  for (uint64_t id = 1; id <= 5; ++id) {
    entries.push_back(Make(id, 1, id == 4 ? 8 : 7));
    ASSERT_TRUE(batcher_->Start(entries.back(), 0).ok());
    ASSERT_TRUE(id > 1 || Inside(1));
  }
  Release();
  for (const auto& entry : entries) EXPECT_TRUE(Eventually([&] { return entry->told == 1; })) << entry->id;
  EXPECT_EQ(chains(), (Chains{{1}, {2, 3, 5}, {4}}));
  for (const auto& entry : entries) EXPECT_EQ(entry->prepared, 1) << "what was given back is not read again";
}

TEST_F(BatcherTest, FreeSessionRunsRequestsThatDoNotFit) {
  Begin(ZeroWait(), /*sessions=*/2);
  Hold();
  std::vector<FakeEntry*> entries;
  for (uint64_t id = 1; id <= 5; ++id) entries.push_back(Make(id, 1, id == 4 ? 8 : 7));
  ASSERT_TRUE(batcher_->Start(entries[0], 0).ok());
  ASSERT_TRUE(Inside(1));
  ASSERT_TRUE(batcher_->Start(entries[1], 1).ok());
  ASSERT_TRUE(Inside(2));
  for (int i = 2; i < 5; ++i) ASSERT_TRUE(batcher_->Start(entries[i], 0).ok());
  Release();
  for (const auto& entry : entries) EXPECT_TRUE(Eventually([&] { return entry->told == 1; })) << entry->id;
}

TEST_F(BatcherTest, FreeSessionsShareABurst) {
  Begin(ZeroWait(), /*sessions=*/2);
  Hold();
  for (uint64_t id = 1; id <= 8; ++id) ASSERT_TRUE(batcher_->Start(Make(id), 0).ok());
  ASSERT_TRUE(Inside(2)) << "one session has taken all, and the other has nothing to do";
}

TEST_F(BatcherTest, CallersAndStartedRequestsShareBatches) {
  Begin(ZeroWait());
  Hold();
  std::vector<Call*> calls = {CallOne(1)};
  ASSERT_TRUE(Inside(1));
  FakeEntry &second = *Make(2), &fourth = *Make(4);
  ASSERT_TRUE(batcher_->Start(&second, 0).ok());
  calls.push_back(CallOne(3));
  ASSERT_TRUE(Waiting(2));
  ASSERT_TRUE(batcher_->Start(&fourth, 0).ok());
  Release();
  ASSERT_TRUE(Ended(calls));
  EXPECT_TRUE(Eventually([&] { return second.told == 1 && fourth.told == 1; }));
  // What nobody has read yet comes after what has been.
  EXPECT_EQ(chains(), (Chains{{1}, {2, 3, 4}}));
}

TEST_F(BatcherTest, RemovesOnlyWaitingRequests) {
  Begin(ZeroWait());
  Hold();
  FakeEntry &running = *Make(1), &waiting = *Make(2);
  ASSERT_TRUE(batcher_->Start(&running, 0).ok());
  ASSERT_TRUE(Inside(1));
  ASSERT_TRUE(batcher_->Start(&waiting, 0).ok());
  EXPECT_EQ(batcher_->Remove(1), nullptr) << "it runs";
  EXPECT_EQ(batcher_->Remove(9), nullptr) << "it never was";
  EXPECT_EQ(batcher_->Remove(2), &waiting);
  EXPECT_EQ(batcher_->Remove(2), nullptr) << "it was removed";
  Release();
  EXPECT_TRUE(Eventually([&] { return running.told == 1; }));
  EXPECT_EQ(waiting.runs + waiting.told + waiting.fails, 0) << "who removes it ends it";
}

TEST_F(BatcherTest, TooManyStartedRequestsAreRefused) {
  Begin(ZeroWait(), 1, /*max_waiting=*/2);
  Hold();
  std::vector<FakeEntry*> entries;
  for (uint64_t id = 1; id <= 4; ++id) entries.push_back(Make(id));
  ASSERT_TRUE(batcher_->Start(entries[0], 0).ok());
  ASSERT_TRUE(Inside(1));
  ASSERT_TRUE(batcher_->Start(entries[1], 0).ok());
  ASSERT_TRUE(batcher_->Start(entries[2], 0).ok());
  const absl::Status refused = batcher_->Start(entries[3], 0);
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  Release();
  EXPECT_TRUE(Eventually([&] { return entries[2]->told == 1; }));
  EXPECT_EQ(entries[3]->prepared + entries[3]->runs + entries[3]->fails, 0);
}

TEST_F(BatcherTest, StopFailsWaitingRequestsAndRefusesLaterOnes) {
  Begin(ZeroWait());
  Hold();
  Call* const running = CallOne(1);
  ASSERT_TRUE(Inside(1));
  Call* const waiting = CallOne(2);
  ASSERT_TRUE(Waiting(1));
  FakeEntry &started = *Make(3), &later = *Make(4);
  ASSERT_TRUE(batcher_->Start(&started, 0).ok());
  batcher_->Stop(absl::CancelledError("the model was freed"));
  ASSERT_TRUE(Ended({waiting}));
  EXPECT_TRUE(absl::IsCancelled(waiting->status));
  EXPECT_EQ(waiting->entry->runs, 0);
  EXPECT_EQ(started.fails, 1);
  EXPECT_TRUE(absl::IsCancelled(batcher_->Start(&later, 0)));
  EXPECT_TRUE(absl::IsCancelled(batcher_->Run(later, 0)));
  EXPECT_FALSE(running->ended);
  Release();
  ASSERT_TRUE(Ended({running}));
  EXPECT_TRUE(running->status.ok()) << "what runs goes on";
}

TEST_F(BatcherTest, WithoutWorkersStartedRequestsAreRefusedOrRunByCallers) {
  Begin(ZeroWait());
  no_workers_ = true;
  FakeEntry& refused = *Make(1);
  EXPECT_TRUE(absl::IsResourceExhausted(batcher_->Start(&refused, 0)));
  EXPECT_EQ(batcher_->waiting(), 0u);
  Hold();
  Call* const running = CallOne(2);
  ASSERT_TRUE(Inside(1));
  FakeEntry& accepted = *Make(3);
  ASSERT_TRUE(batcher_->Start(&accepted, 0).ok());
  Release();
  EXPECT_TRUE(Eventually([&] { return accepted.told == 1; }));
  ASSERT_TRUE(Ended({running}));
  EXPECT_EQ(refused.runs + refused.fails, 0);
}

TEST_F(BatcherTest, TimedBatchesWaitForMoreRequests) {
  Begin(Timed(/*max_rows=*/3, /*max_wait_us=*/10'000'000));
  std::vector<Call*> calls = {CallOne(1)};
  ASSERT_TRUE(Waiting(1));
  calls.push_back(CallOne(2));
  ASSERT_TRUE(Waiting(2));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_TRUE(chains().empty());
  calls.push_back(CallOne(3));
  ASSERT_TRUE(Ended(calls));
  EXPECT_EQ(chains(), (Chains{{1, 2, 3}}));
}

TEST_F(BatcherTest, TimedBatchesWaitAtMostTheMaximum) {
  Begin(Timed(100, /*max_wait_us=*/20'000));
  const int64_t begin_ns = NowNs();
  std::vector<Call*> calls = {CallOne(1)};
  FakeEntry& started = *Make(2);
  ASSERT_TRUE(batcher_->Start(&started, 0).ok());
  ASSERT_TRUE(Ended(calls));
  EXPECT_TRUE(Eventually([&] { return started.told == 1; }));
  EXPECT_GE(NowNs() - begin_ns, 15'000'000);
  // Again, with nobody but a worker.
  FakeEntry& alone = *Make(3);
  ASSERT_TRUE(batcher_->Start(&alone, 0).ok());
  EXPECT_TRUE(Eventually([&] { return alone.told == 1; }));
}

TEST_F(BatcherTest, TimedBatchesMeetDeadlinesAndDoNotDelayALoneRequest) {
  Begin(Timed(100, /*max_wait_us=*/10'000'000));
  auto entry = std::make_unique<FakeEntry>(1);
  entry->deadline_us = NowNs() / 1000 + 100'000;
  Call* const urgent = CallWith(std::move(entry));
  ASSERT_TRUE(Ended({urgent}));
  // It waits until the time that a run takes is left, which no run has shown yet.
  EXPECT_TRUE(urgent->status.ok() || absl::IsDeadlineExceeded(urgent->status)) << urgent->status;
  Call* const alone = CallOne(2, /*rows=*/0);
  Call* const large = CallOne(3, /*rows=*/100);
  ASSERT_TRUE(Ended({alone, large}));
  EXPECT_TRUE(alone->status.ok());
  EXPECT_TRUE(large->status.ok());
}

TEST_F(BatcherTest, ARequestThatWaitsForItsBatchCanBeRemoved) {
  Begin(Timed(100, /*max_wait_us=*/10'000'000));
  FakeEntry& entry = *Make(1);
  ASSERT_TRUE(batcher_->Start(&entry, 0).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(batcher_->Remove(1), &entry);
  EXPECT_EQ(entry.runs, 0);
}

TEST_F(BatcherTest, AChangeOfModeRunsTheWaitingBatch) {
  for (const BatchMode mode : {BatchMode::kZeroWait, BatchMode::kOff}) {
    SCOPED_TRACE(static_cast<int>(mode));
    if (batcher_ == nullptr) Begin(Timed(100, 10'000'000));
    batcher_->SetOptions(Timed(100, 10'000'000));
    Call* const call = CallOne(1);
    FakeEntry& started = *Make(2);
    ASSERT_TRUE(Waiting(1));
    ASSERT_TRUE(batcher_->Start(&started, 0).ok());
    batcher_->SetOptions({mode, 256, 1000});
    EXPECT_EQ(batcher_->on(), mode != BatchMode::kOff);
    ASSERT_TRUE(Ended({call}));
    EXPECT_TRUE(Eventually([&] { return started.told == 1; }));
  }
}

TEST_F(BatcherTest, WaitingRequestsRunAfterOptionsChange) {
  Begin(ZeroWait());
  Hold();
  std::vector<Call*> calls = {CallOne(1)};
  ASSERT_TRUE(Inside(1));
  calls.push_back(CallOne(2));
  ASSERT_TRUE(Waiting(1));
  // Its thread looks at no clock: it waits for the run to end.
  batcher_->SetOptions(Timed(100, 600'000'000));
  Release();
  EXPECT_TRUE(Ended(calls));
}

class BatcherByCpuTest : public BatcherTest, public ::testing::WithParamInterface<bool> {};

INSTANTIATE_TEST_SUITE_P(Batcher, BatcherByCpuTest, ::testing::Bool());

TEST_P(BatcherByCpuTest, EveryRequestEndsExactlyOnce) {
  constexpr int kThreads = 6, kRequests = 400;
  Begin(ZeroWait(8), /*sessions=*/2, /*max_waiting=*/64, /*by_cpu=*/GetParam());
  std::atomic<bool> stop{false};
  std::thread switcher([&] {
    for (int i = 0; !stop; ++i) {
      const BatchOptions modes[] = {ZeroWait(8), Timed(4, 200), ZeroWait(1), Timed(64, 50)};
      batcher_->SetOptions(modes[i % 4]);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  std::vector<std::vector<FakeEntry*>> all(kThreads), started(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    std::mt19937 random(static_cast<unsigned>(t));
    for (int i = 0; i < kRequests; ++i) {
      all[t].push_back(Make(static_cast<uint64_t>(t) * kRequests + i + 1, random() % 4, 7 + random() % 2));
    }
  }
  std::atomic<int> ran{0}, late{0}, refused{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int i = 0; i < kRequests; ++i) {
        FakeEntry* const entry = all[t][i];
        entry->priority = static_cast<int32_t>(random() % 3);
        if (random() % 8 == 0) entry->prepare_status = absl::InvalidArgumentError("bytes");
        if (random() % 4 == 0) entry->deadline_us = NowNs() / 1000 + random() % 300;
        if (t % 2 == 0) {
          const absl::Status status = batcher_->Run(*entry, t);
          EXPECT_EQ(entry->runs, status.ok() ? 1 : 0);
          EXPECT_EQ(entry->told, status.ok() ? 1 : 0);
          EXPECT_EQ(entry->fails, 0);
          ++(status.ok() ? ran : late);
          continue;
        }
        if (!batcher_->Start(entry, t).ok()) {
          ++refused;
          continue;
        }
        started[t].push_back(entry);
        if (i % 5 != 0) continue;
        if (BatchEntry* removed = batcher_->Remove(entry->id)) removed->Fail(absl::CancelledError("removed"));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  stop = true;
  switcher.join();
  batcher_->SetOptions(ZeroWait());
  EXPECT_TRUE(Waiting(0));
  for (const auto& entries : started) {
    for (const auto& entry : entries) {
      EXPECT_TRUE(Eventually([&] { return entry->told + entry->fails == 1; })) << entry->id;
      EXPECT_EQ(entry->runs, entry->told);
    }
  }
  EXPECT_GT(ran, 0);
}

}  // namespace
}  // namespace processor
