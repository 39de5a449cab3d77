// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/session/session_slot.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace processor {
namespace {

class Event {
 public:
  void Set() {
    std::lock_guard<std::mutex> lock(mutex_);
    set_ = true;
    wake_.notify_all();
  }
  bool Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    return wake_.wait_for(lock, std::chrono::seconds(10), [this] { return set_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool set_ = false;
};

// Counts how it ended; exactly one of both must.
class FakeTask : public Task {
 public:
  explicit FakeTask(uint64_t number, int32_t wanted_priority = 0, std::function<void()> body = nullptr)
      : body_(std::move(body)) {
    id = number;
    priority = wanted_priority;
  }
  void Run(int session) noexcept override {
    session_ = session;
    if (body_) body_();
    ++runs;
  }
  void Fail(const absl::Status& status) noexcept override {
    failure = status;
    ++fails;
  }

  std::atomic<int> runs{0}, fails{0};
  absl::Status failure;
  int session() const { return session_; }

 private:
  const std::function<void()> body_;
  int session_ = -1;
};

SessionSlot::Options Options(int max_queue_size = 16, int worker_threads = 1) {
  SessionSlot::Options options;
  options.name = "slot-under-test";
  options.index = 3;
  options.worker_threads = worker_threads;
  options.max_queue_size = max_queue_size;
  return options;
}

// A slot whose only thread is busy until Release().
class BusySlot {
 public:
  explicit BusySlot(int max_queue_size = 16) : slot(Options(max_queue_size)) {
    blocker = std::make_shared<FakeTask>(0, 0, [this] {
      begun_.Set();
      released_.Wait();
    });
    EXPECT_TRUE(slot.Submit(blocker).ok());
    EXPECT_TRUE(begun_.Wait());
  }
  ~BusySlot() { Release(); }
  void Release() { released_.Set(); }

 private:
  Event begun_, released_;  // outlive the slot, whose thread uses them

 public:
  std::shared_ptr<FakeTask> blocker;
  SessionSlot slot;
};

TEST(SessionSlot, RunsOnItsSession) {
  SessionSlot slot(Options());
  Event ran;
  const auto task = std::make_shared<FakeTask>(1, 0, [&] { ran.Set(); });
  ASSERT_TRUE(slot.Submit(task).ok());
  EXPECT_TRUE(ran.Wait());
  slot.Refuse(absl::CancelledError("end"));
  slot.Stop();
  EXPECT_EQ(task->runs, 1);
  EXPECT_EQ(task->fails, 0);
  EXPECT_EQ(task->session(), 3);
}

TEST(SessionSlot, RunsByPriorityThenArrival) {
  BusySlot busy;
  std::vector<uint64_t> order;  // one thread writes, joined before it is read
  uint64_t number = 0;
  for (const int32_t priority : {0, 5, INT32_MIN, 5, INT32_MAX, 0}) {
    const uint64_t id = ++number;
    ASSERT_TRUE(busy.slot.Submit(std::make_shared<FakeTask>(id, priority, [&order, id] { order.push_back(id); })).ok());
  }
  EXPECT_EQ(busy.slot.queued(), 6u);
  Event last;
  ASSERT_TRUE(busy.slot.Submit(std::make_shared<FakeTask>(7, INT32_MIN, [&] { last.Set(); })).ok());
  busy.Release();
  ASSERT_TRUE(last.Wait());
  EXPECT_EQ(order, (std::vector<uint64_t>{5, 2, 4, 1, 6, 3}));
}

TEST(SessionSlot, ResumedTasksRunBeforeThoseOfTheirPriorityThatHaveNotBegun) {
  BusySlot busy(/*max_queue_size=*/3);
  std::vector<uint64_t> order;  // one thread writes, joined before it is read
  Event last;
  const auto task = [&](uint64_t id, int32_t priority) {
    return std::make_shared<FakeTask>(id, priority, [&order, &last, id] {
      order.push_back(id);
      if (id == 2) last.Set();
    });
  };
  ASSERT_TRUE(busy.slot.Submit(task(1, 0)).ok());
  ASSERT_TRUE(busy.slot.Submit(task(2, 0)).ok());
  ASSERT_TRUE(busy.slot.Submit(task(3, 5)).ok());
  EXPECT_FALSE(busy.slot.Submit(task(4, 0)).ok()) << "the queue is full";
  ASSERT_TRUE(busy.slot.Resume(task(5, 0)).ok());
  ASSERT_TRUE(busy.slot.Resume(task(6, 0)).ok());
  busy.Release();
  ASSERT_TRUE(last.Wait());
  EXPECT_EQ(order, (std::vector<uint64_t>{3, 5, 6, 1, 2}));
  busy.slot.Refuse(absl::CancelledError("end"));
  EXPECT_EQ(busy.slot.Resume(task(7, 0)).code(), absl::StatusCode::kCancelled);
}

TEST(SessionSlot, FullQueueRefusesAndLeavesTaskUntouched) {
  BusySlot busy(2);
  ASSERT_TRUE(busy.slot.Submit(std::make_shared<FakeTask>(1)).ok());
  ASSERT_TRUE(busy.slot.Submit(std::make_shared<FakeTask>(2)).ok());
  const auto refused = std::make_shared<FakeTask>(3);
  const absl::Status status = busy.slot.Submit(refused);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_NE(status.message().find("max_queue_size"), std::string::npos) << status;
  EXPECT_EQ(refused->runs + refused->fails, 0);
  EXPECT_NE(busy.slot.Remove(1), nullptr);
  EXPECT_TRUE(busy.slot.Submit(refused).ok()) << "there is room again";
}

TEST(SessionSlot, RunsOneTaskPerCpu) {
  SessionSlot::Options options = Options(16, 2);
  options.one_task_per_cpu = true;
  options.cpus = {AllowedCpus().front()};
  std::atomic<int> at_once{0}, most{0};
  Event first, second, last;
  const auto run = [&](Event* begun, Event* until) {
    return std::make_shared<FakeTask>(0, 0, [&, begun, until] {
      most = std::max(most.load(), ++at_once);
      begun->Set();
      if (until != nullptr) until->Wait();
      --at_once;
    });
  };
  SessionSlot slot(options);
  ASSERT_TRUE(slot.Submit(run(&first, &last)).ok());
  ASSERT_TRUE(first.Wait());
  ASSERT_TRUE(slot.Submit(run(&second, nullptr)).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(slot.queued(), 1u) << "the second thread has no CPU";
  slot.SetCpus({});
  EXPECT_TRUE(second.Wait()) << "all CPUs are its own, and what waited runs";
  EXPECT_EQ(most, 2);
  last.Set();
}

TEST(SessionSlot, RemovesOnlyWaitingTasks) {
  BusySlot busy;
  const auto task = std::make_shared<FakeTask>(7);
  ASSERT_TRUE(busy.slot.Submit(task).ok());
  EXPECT_EQ(busy.slot.Remove(0), nullptr) << "it runs";
  EXPECT_EQ(busy.slot.Remove(8), nullptr) << "it never was";
  EXPECT_EQ(busy.slot.Remove(7), task);
  EXPECT_EQ(busy.slot.Remove(7), nullptr) << "it was removed";
  busy.Release();
  busy.slot.Refuse(absl::CancelledError("end"));
  busy.slot.Stop();
  EXPECT_EQ(task->runs + task->fails, 0) << "who removes it ends it";
}

TEST(SessionSlot, StopFailsWaitingTasksAndWaitsForTheRunningOne) {
  auto busy = std::make_unique<BusySlot>();
  std::vector<std::shared_ptr<FakeTask>> waiting;
  for (uint64_t id = 1; id <= 3; ++id) {
    waiting.push_back(std::make_shared<FakeTask>(id));
    ASSERT_TRUE(busy->slot.Submit(waiting.back()).ok());
  }
  std::thread release([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    busy->Release();
  });
  busy->slot.Refuse(absl::CancelledError("the model was freed"));
  busy->slot.Stop();
  EXPECT_EQ(busy->blocker->runs, 1) << "Stop() returned before the running task had ended";
  release.join();
  for (const auto& task : waiting) {
    EXPECT_EQ(task->fails, 1);
    EXPECT_EQ(task->runs, 0);
    EXPECT_TRUE(absl::IsCancelled(task->failure));
  }
  EXPECT_TRUE(absl::IsCancelled(busy->slot.Submit(std::make_shared<FakeTask>(9))));
  busy->slot.Refuse(absl::CancelledError("again"));
  busy->slot.Stop();
}

TEST(SessionSlot, SeveralWorkersRunAtOnce) {
  SessionSlot slot(Options(16, 3));
  std::atomic<int> inside{0};
  Event all;
  for (uint64_t id = 0; id < 3; ++id) {
    ASSERT_TRUE(slot.Submit(std::make_shared<FakeTask>(id, 0,
                                                       [&] {
                                                         if (++inside == 3) all.Set();
                                                         all.Wait();
                                                       }))
                    .ok());
  }
  EXPECT_TRUE(all.Wait());
}

TEST(SessionSlot, MovesItsThreads) {
  const CpuSet allowed = AllowedCpus();
  SessionSlot::Options options = Options();
  options.cpus = {allowed.front()};
  SessionSlot slot(options);
  const auto cpus_inside = [&slot] {
    CpuSet cpus;
    Event ran;
    EXPECT_TRUE(slot.Submit(std::make_shared<FakeTask>(1, 0,
                                                       [&] {
                                                         cpus = CpusOfThread(0);
                                                         ran.Set();
                                                       }))
                    .ok());
    EXPECT_TRUE(ran.Wait());
    return cpus;
  };
  EXPECT_EQ(cpus_inside(), CpuSet{allowed.front()});
  slot.SetCpus({allowed.back()});
  EXPECT_EQ(cpus_inside(), CpuSet{allowed.back()});
  EXPECT_EQ(slot.cpus(), CpuSet{allowed.back()});
  slot.SetCpus(allowed);
  EXPECT_EQ(cpus_inside(), allowed);
}

TEST(SessionSlot, VisitRunsInPlaceOfAThread) {
  SessionSlot slot(Options());
  Event ran;
  {
    const SessionSlot::Visit visit(&slot), second(&slot);
    EXPECT_TRUE(visit.begun());
    EXPECT_FALSE(second.begun()) << "the slot has one thread";
    ASSERT_TRUE(slot.Submit(std::make_shared<FakeTask>(1, 0, [&] { ran.Set(); })).ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(slot.queued(), 1u) << "the visit has the only place";
  }
  EXPECT_TRUE(ran.Wait()) << "a thread takes over when the visit ends";
}

TEST(SessionSlot, VisitWaitsForNobody) {
  BusySlot busy;
  EXPECT_FALSE(SessionSlot::Visit(&busy.slot).begun()) << "a task runs";
  ASSERT_TRUE(busy.slot.Submit(std::make_shared<FakeTask>(1)).ok());
  EXPECT_FALSE(SessionSlot::Visit(&busy.slot).begun()) << "a task waits";
  busy.Release();
  busy.slot.Refuse(absl::CancelledError("end"));
  busy.slot.Stop();
  EXPECT_FALSE(SessionSlot::Visit(&busy.slot).begun()) << "the slot is stopped";
}

TEST(SessionSlot, VisitIsOnTheCpusOfTheSlot) {
  SessionSlot::Options options = Options();
  options.cpus = {AllowedCpus().front()};
  SessionSlot slot(options);
  std::thread([&] {
    const CpuSet own = CpusOfThread(0);
    {
      const SessionSlot::Visit visit(&slot);
      ASSERT_TRUE(visit.begun());
      EXPECT_EQ(CpusOfThread(0), options.cpus);
    }
    EXPECT_EQ(CpusOfThread(0), own);
  }).join();
}

TEST(SessionSlot, VisitsAndTasksTogetherStayWithinThePlaces) {
  constexpr int kThreads = 6, kRequests = 300, kPlaces = 2;
  SessionSlot slot(Options(kThreads * kRequests, kPlaces));
  std::atomic<int> inside{0}, most{0}, visits{0}, tasks{0};
  const auto run = [&] {
    const int now = ++inside;
    for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
    }
    --inside;
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kRequests; ++i) {
        const SessionSlot::Visit visit(&slot);
        if (visit.begun()) {
          run();
          ++visits;
        } else {
          ASSERT_TRUE(slot.Submit(std::make_shared<FakeTask>(1, 0, [&] { run(), ++tasks; })).ok());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < 1000 && visits + tasks < kThreads * kRequests; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(visits + tasks, kThreads * kRequests) << "a request was left in the queue";
  EXPECT_LE(most, kPlaces);
  EXPECT_GT(visits, 0);
}

// Runs tasks one after the other, in such quick succession that the thread of the slot spins between them.
void RunShortTasks(SessionSlot* slot, int tasks, int most_pause) {
  for (int i = 0; i < tasks; ++i) {
    const auto task = std::make_shared<FakeTask>(1);
    ASSERT_TRUE(slot->Submit(task).ok());
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (task->runs == 0 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    ASSERT_EQ(task->runs, 1) << "the thread was not woken";
    const auto next = std::chrono::steady_clock::now() + std::chrono::microseconds(i % (most_pause + 1));
    while (std::chrono::steady_clock::now() < next) {
    }
  }
}

SessionSlot::Options PinnedOptions() {
  SessionSlot::Options options = Options(/*max_queue_size=*/64);
  options.cpus = {AllowedCpus().back()};
  return options;
}

TEST(SessionSlot, NoWakeUpIsLostWhileItsThreadStopsSpinning) {
  SessionSlot slot(PinnedOptions());
  std::vector<std::thread> threads;
  // Pauses around the time that a thread spins.
  constexpr int kMostPauseUs = 2 * AdaptiveSpin::kMostNs / 1000;
  for (int t = 0; t < 3; ++t) threads.emplace_back([&] { RunShortTasks(&slot, 2000, kMostPauseUs); });
  for (std::thread& thread : threads) thread.join();
}

TEST(SessionSlot, StopsAndMovesWhileItsThreadSpins) {
  for (int i = 0; i < 50; ++i) {
    SessionSlot slot(PinnedOptions());
    RunShortTasks(&slot, 30, 0);
    if (i % 2 == 0) slot.SetCpus({AllowedCpus().front()});
    RunShortTasks(&slot, 2, 0);
    slot.Refuse(absl::CancelledError("end"));
    slot.Stop();
  }
}

TEST(SessionSlot, EveryTaskEndsExactlyOnce) {
  constexpr int kThreads = 8, kTasks = 300;
  SessionSlot slot(Options(64, 2));
  std::vector<std::vector<std::shared_ptr<FakeTask>>> accepted(kThreads);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kTasks; ++i) {
        const auto task = std::make_shared<FakeTask>(t * kTasks + i, i % 3);
        const absl::Status status = slot.Submit(task);
        if (!status.ok()) {
          EXPECT_TRUE(absl::IsResourceExhausted(status) || absl::IsCancelled(status)) << status;
          continue;
        }
        accepted[t].push_back(task);
        if (i % 7 != 0) continue;
        if (const std::shared_ptr<Task> removed = slot.Remove(task->id)) removed->Fail(absl::CancelledError("removed"));
      }
    });
  }
  std::thread mover([&] {
    const CpuSet allowed = AllowedCpus();
    while (!stop) {
      slot.SetCpus({allowed.back()});
      slot.SetCpus(allowed);
      slot.queued();
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  slot.Refuse(absl::CancelledError("stopped"));
  slot.Stop();
  for (std::thread& thread : threads) thread.join();
  stop = true;
  mover.join();
  for (const auto& tasks : accepted) {
    for (const auto& task : tasks) EXPECT_EQ(task->runs + task->fails, 1);
  }
}

}  // namespace
}  // namespace processor
