// SPDX-License-Identifier: Apache-2.0
// Two threads train while cuts of checkpoints and publishers are taken: each row of a cut is as it was at one instant
// between steps. `make test-tsan` runs these too.
//
// Every step of a thread updates each of its keys in both tables once, so at any instant between steps all its rows tell
// the same number of updates: a row of another instant, or a torn one, tells another.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "cut_fixture.h"

namespace elastic_training {
namespace {

#ifdef __SANITIZE_THREAD__
constexpr int kCuts = 6;
constexpr size_t kOwnKeys = 300;
#else
constexpr int kCuts = 30;
constexpr size_t kOwnKeys = 2000;
#endif
constexpr uint64_t kThreads = 2;
constexpr uint64_t kPassing = 1 << 20;  // keys from here on are added by one step and evicted ten steps later
constexpr uint64_t kLife = 10;

uint64_t PassingKey(uint64_t thread, uint64_t step) { return kPassing * (thread + 1) + step; }

class Trainers {
 public:
  explicit Trainers(std::vector<ElasticTable*> tables) : tables_(std::move(tables)) {
    for (uint64_t t = 0; t < kThreads; ++t) threads_.emplace_back([this, t] { Run(t); });
  }
  ~Trainers() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  uint64_t steps() const { return steps_.load(); }

 private:
  void Run(uint64_t thread) {
    const std::vector<uint64_t> own = Keys(thread * kOwnKeys, kOwnKeys);
    for (uint64_t step = 1; !stop_.load(); ++step) {
      const Writing writing;
      for (ElasticTable* const table : tables_) {
        Train(table, own);
        Train(table, {PassingKey(thread, step)});
        if (step > kLife) Evict(table, {PassingKey(thread, step - kLife)});
      }
      ++steps_;
    }
  }

  const std::vector<ElasticTable*> tables_;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> steps_{0};
  std::vector<std::thread> threads_;
};

// Weights after n updates, by the table itself.
std::vector<float> Replayed(uint64_t updates) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  static const auto table = CountingTable("replay");
  static std::vector<std::vector<float>> known = {std::vector<float>(2 * kDim, 0)};
  while (known.size() <= updates) {
    Train(table.get(), {1});
    const uint64_t key = 1;
    std::vector<float> values(2 * kDim);
    RowContents contents;
    contents.weights = values.data();
    contents.slots = values.data() + kDim;
    table->Read({&key, nullptr, 1}, contents);
    known.push_back(values);
  }
  return known[updates];
}

// Checks that a copy has the rows of one instant, and returns the steps of each thread then.
std::vector<uint64_t> CheckInstant(const Copy& copy) {
  std::vector<uint64_t> steps(kThreads, 0);
  size_t rows = 0;
  for (uint64_t t = 0; t < kThreads; ++t) {
    const auto first = copy.find(t * kOwnKeys);
    if (first == copy.end()) continue;
    steps[t] = first->second.count;
    std::vector<float> expected = Replayed(steps[t]);
    expected.resize(first->second.values.size());
    for (size_t i = 0; i < kOwnKeys; ++i) {
      const auto row = copy.find(t * kOwnKeys + i);
      EXPECT_NE(row, copy.end());
      if (row == copy.end()) return steps;
      EXPECT_EQ(row->second.count, steps[t]);
      EXPECT_EQ(row->second.values, expected) << "key " << row->first;
    }
    rows += kOwnKeys;
    for (uint64_t step = steps[t] > kLife ? steps[t] - kLife + 1 : 1; step <= steps[t]; ++step, ++rows) {
      EXPECT_EQ(copy.count(PassingKey(t, step)), 1) << "added by step " << step << " of " << steps[t];
    }
  }
  EXPECT_EQ(copy.size(), rows);
  return steps;
}

void TakeCuts(size_t memory_bytes, const std::function<void(ModelCut*)>& after_begin) {
  const auto a = CountingTable("a"), b = CountingTable("b");
  Trainers trainers({a.get(), b.get()});
  while (trainers.steps() < 20) std::this_thread::yield();
  Copy copies[2];
  uint64_t token = 0;
  int of_changes = 0;
  for (int i = 0; i < kCuts && !testing::Test::HasFailure(); ++i) {
    const uint64_t base = i % 5 == 0 ? 0 : token;  // every fifth is a full one
    ModelCut cut({a.get(), b.get()}, {base, ++token, memory_bytes});
    after_begin(&cut);
    of_changes += cut.changes_only();
    for (int t = 0; t < 2; ++t) ReadInto(&cut.at(t), cut.changes_only(), &copies[t], 16 << 10);
    const std::vector<uint64_t> steps = CheckInstant(copies[0]);
    EXPECT_EQ(CheckInstant(copies[1]), steps);
    // Each step of a thread is two updates of a table.
    EXPECT_EQ(cut.at(0).step(), 2 * (steps[0] + steps[1]));
    EXPECT_EQ(cut.at(1).step(), cut.at(0).step());
    cut.End(true);
  }
  EXPECT_EQ(of_changes, kCuts - (kCuts + 4) / 5);
}

TEST(CutThreads, HaveTheRowsOfOneInstant) {
  TakeCuts(size_t{64} << 20, [](ModelCut*) {});
}

TEST(CutThreads, HoldTrainingBackWhenMemoryIsFull) {
  // Writers keep all rows before the reader comes, so they pass the limit and wait.
  constexpr size_t kLimit = 1;
  size_t most = 0;
  TakeCuts(kLimit, [&](ModelCut* cut) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    most = std::max(most, cut->kept());
  });
  EXPECT_LE(most, kThreads * 2 * kOwnKeys * 100);  // what calls that had begun could add
}

// Reads changes of two tables into copies, and returns whether they have all.
bool Publish(const std::vector<ElasticTable*>& tables, size_t memory_bytes, Copy* copies) {
  ModelChanges changes(tables, memory_bytes);
  // Training changes some rows before they are read.
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  for (size_t t = 0; t < tables.size(); ++t) ReadInto(&changes.at(t), true, &copies[t], 16 << 10);
  return changes.End(true);
}

TEST(CutThreads, PublishTheRowsOfOneInstantBesideCheckpoints) {
  const auto a = CountingTable("a"), b = CountingTable("b");
  a->Follow(), b->Follow();
  std::atomic<bool> stop{false};
  Trainers trainers({a.get(), b.get()});
  std::thread checkpoints([&] {
    Copy copy;
    for (uint64_t token = 1; !stop.load() && !testing::Test::HasFailure(); ++token) {
      ModelCut cut({a.get(), b.get()}, {token % 3 == 0 ? 0 : token - 1, token, size_t{64} << 20});
      ReadInto(&cut.at(0), cut.changes_only(), &copy, 16 << 10);
      CheckInstant(copy);
      while (!cut.at(1).Read(1 << 20).empty()) {
      }
      cut.End(true);
    }
  });
  Copy copies[2];
  for (int i = 0; i < kCuts && !testing::Test::HasFailure(); ++i) {
    EXPECT_TRUE(Publish({a.get(), b.get()}, size_t{64} << 20, copies));
    EXPECT_EQ(CheckInstant(copies[0]), CheckInstant(copies[1]));
  }
  stop = true;
  checkpoints.join();
}

TEST(CutThreads, LeaveChangesToTheNextCutWhenMemoryIsFull) {
  const auto a = CountingTable("a"), b = CountingTable("b");
  a->Follow(), b->Follow();
  Copy copies[2];
  int whole = 0;
  {
    Trainers trainers({a.get(), b.get()});
    for (int i = 0; i < kCuts; ++i) {
      whole += Publish({a.get(), b.get()}, 1, copies);
      const uint64_t steps = trainers.steps();
      while (trainers.steps() < steps + 4) std::this_thread::yield();
    }
  }
  EXPECT_LT(whole, kCuts);
  EXPECT_TRUE(Publish({a.get(), b.get()}, 1, copies));
  const std::vector<uint64_t> steps = CheckInstant(copies[0]);
  EXPECT_EQ(CheckInstant(copies[1]), steps);
  EXPECT_EQ(2 * (steps[0] + steps[1]), a->step());
}

TEST(CutThreads, LetTrainingGoOnWhenNobodyReads) {
  Writers writers(std::chrono::milliseconds(20));
  const auto table = CountingTable("a");
  // Enough for a segment to hand over what it kept.
  Train(table.get(), Keys(0, 100'000));
  ModelCut cut({table.get()}, {0, 1, 1}, &writers);
  for (int i = 0; i < 2; ++i) {
    writers.Enter();
    Train(table.get(), Keys(0, 100'000));
    writers.Leave();
  }
  try {
    cut.at(0).Read(1 << 20);
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("table 'a': the cut is lost"), std::string::npos) << error.what();
  }
  cut.End(true);
  ModelCut next({table.get()}, {1, 2, 1 << 20}, &writers);
  EXPECT_FALSE(next.changes_only());
  Copy copy;
  EXPECT_EQ(ReadInto(&next.at(0), false, &copy), 100'000);
}

}  // namespace
}  // namespace elastic_training
