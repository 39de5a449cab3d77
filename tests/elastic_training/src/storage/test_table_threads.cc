// SPDX-License-Identifier: Apache-2.0
// Many threads and one table: nothing is lost, and no row is read torn. `make test-tsan` runs these too.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "table_fixture.h"

namespace elastic_training {
namespace {

#ifdef __SANITIZE_THREAD__
constexpr int kSteps = 60;
#else
constexpr int kSteps = 400;
#endif

void RunThreads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(body, i);
  for (std::thread& thread : threads) thread.join();
}

// All weights of a row are equal at any time, because its initial weights and gradients are.
bool Torn(const float* row) { return row[0] != row[1] || row[0] != row[2] || row[0] != row[3]; }

constexpr char kEqualWeights[] = R"({"initializer": {"kind": "constant", "value": 1}})";

TEST(TableThreads, LoseNoUpdateAndTearNoRow) {
  const auto table = MakeTable(kEqualWeights);
  std::atomic<bool> stop{false};
  std::atomic<int> torn{0};
  std::atomic<int64_t> sum{0};
  std::thread reader([&] {
    std::mt19937 random(99);
    while (!stop.load()) {
      std::vector<uint64_t> keys(200);
      for (uint64_t& key : keys) key = random() % 2000;
      Batch batch(keys);
      batch.Lookup(table.get(), false);
      for (size_t i = 0; i < keys.size(); ++i) torn += Torn(&batch.rows[4 * i]);
    }
  });
  RunThreads(3, [&](int number) {
    std::mt19937 random(number);
    for (int step = 0; step < kSteps; ++step) {
      std::vector<uint64_t> keys(200);
      for (uint64_t& key : keys) key = random() % 2000;
      Batch batch(keys);
      batch.Lookup(table.get(), true);
      for (size_t i = 0; i < keys.size(); ++i) torn += Torn(&batch.rows[4 * i]);
      batch.Update(table.get(), std::vector<float>(800, -1));
      sum += 200;
    }
  });
  stop = true;
  reader.join();
  EXPECT_EQ(torn.load(), 0);
  EXPECT_EQ(table->step(), 3u * kSteps);
  double total = 0;
  int64_t rows = 0, counted = 0;
  VisitAll(*table, [&](const RowView& row) {
    total += row.weights[0] - 1;
    counted += row.count;
    ++rows;
  });
  EXPECT_EQ(rows, table->counts().full);
  EXPECT_EQ(total, static_cast<double>(sum.load()));
  EXPECT_EQ(counted, sum.load());
}

// Segments split while others read and write the same keys.
TEST(TableThreads, GrowTogether) {
  const auto table = MakeTable(kEqualWeights);
  constexpr uint64_t kKeys = 300000;
  std::atomic<int> torn{0};
  RunThreads(4, [&](int number) {
    // Two pairs of threads, each with the same keys.
    const uint64_t first = number / 2 * kKeys / 2;
    for (uint64_t key = first; key < first + kKeys / 2; key += 5000) {
      Batch batch(Numbers(key, 5000));
      batch.Lookup(table.get(), true);
      for (size_t i = 0; i < 5000; ++i) torn += Torn(&batch.rows[4 * i]);
      batch.Update(table.get(), std::vector<float>(20000, -1));
    }
  });
  EXPECT_EQ(torn.load(), 0);
  EXPECT_EQ(table->counts().full, static_cast<int64_t>(kKeys));
  Batch all(Numbers(0, kKeys));
  EXPECT_EQ(all.Lookup(table.get(), false), std::vector<float>(4 * kKeys, 3));
}

// Lasso releases rows, a sweep evicts, a publisher reads changes, while two threads train.
TEST(TableThreads, TrainEvictReleaseAndPublish) {
  const auto table = MakeTable(R"({"key": "string", "optimizer": {"kind": "adagrad", "l21": 0.01, "release_after": 2},
                                   "admission": {"kind": "count", "threshold": 2}})");
  table->Follow();
  std::vector<std::string> texts;
  for (int i = 0; i < 3000; ++i) texts.push_back("key " + std::to_string(i));
  std::atomic<bool> stop{false};
  std::map<uint64_t, RowKind> followed;
  const auto follow = [&] {
    const Changes changes = ChangesOf(table.get());
    for (const uint64_t key : changes.evicted) followed.erase(key);
    for (const auto& [key, kind] : changes.rows) followed[key] = kind;
  };
  std::thread publisher([&] {
    while (!stop.load()) follow();
  });
  std::thread sweeper([&] {
    std::mt19937 random(7);
    uint64_t cursor = 0;
    while (!stop.load()) {
      const Writing writing;
      cursor = table->Sweep(cursor, [&](const RowView& row) {
        return random() % 50 == 0 ? RowFate::kEvict : row.count % 50 == 49 ? RowFate::kRelease : RowFate::kKeep;
      });
    }
  });
  RunThreads(2, [&](int number) {
    std::mt19937 random(number);
    for (int step = 0; step < kSteps; ++step) {
      std::vector<uint64_t> keys(100);
      std::vector<std::string_view> views;
      for (uint64_t& key : keys) {
        key = random() % 3000;
        views.push_back(texts[key]);
      }
      Batch batch(keys, views);
      const Writing writing;
      batch.Lookup(table.get(), true);
      std::vector<float> gradients(400);
      for (float& gradient : gradients) gradient = static_cast<float>(static_cast<int>(random() % 3) - 1) * 0.1f;
      batch.Update(table.get(), gradients);
    }
  });
  stop = true;
  publisher.join();
  sweeper.join();
  follow();
  std::map<uint64_t, RowKind> rows;
  VisitAll(*table, [&](const RowView& row) {
    ASSERT_EQ(row.text, texts[row.key]);
    if (row.kind != RowKind::kCandidate) rows[row.key] = row.kind;
  });
  EXPECT_EQ(followed, rows);
  const RowCounts counts = table->counts();
  EXPECT_EQ(counts.full + counts.released, static_cast<int64_t>(rows.size()));
}

}  // namespace
}  // namespace elastic_training
