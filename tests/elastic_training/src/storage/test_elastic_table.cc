// SPDX-License-Identifier: Apache-2.0
// One thread and one table: growth, strings, records, eviction, and what consumers collect.
#include "src/storage/elastic_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "table_fixture.h"

namespace elastic_training {
namespace {

constexpr char kLasso[] = R"({"optimizer": {"kind": "adagrad", "l21": 1000, "release_after": 1}})";

TEST(ElasticTable, FindsFirstsOfRepeatedKeys) {
  const auto table = MakeTable();
  Batch batch({5, 6, 5, 7, 6, 5});
  batch.Lookup(table.get(), true, 77);
  EXPECT_EQ(batch.firsts, (std::vector<int32_t>{0, 1, 0, 3, 1, 0}));
  EXPECT_EQ(batch.places[2], batch.places[0]);
  EXPECT_TRUE(std::equal(&batch.rows[0], &batch.rows[4], &batch.rows[8]));
  std::map<uint64_t, std::pair<uint32_t, uint32_t>> seen;
  VisitAll(*table, [&](const RowView& row) { seen[row.key] = {row.count, row.touch}; });
  EXPECT_EQ(seen, (std::map<uint64_t, std::pair<uint32_t, uint32_t>>{{5, {3, 77}}, {6, {2, 77}}, {7, {1, 77}}}));
}

TEST(ElasticTable, GrowsInOneBatchThatSplitsSegmentsManyTimes) {
  const auto table = MakeTable();
  // Each key twice, so that repeated keys wait for segments that split too.
  std::vector<uint64_t> keys = Numbers(0, 600000);
  keys.insert(keys.end(), keys.begin(), keys.end());
  Batch batch(keys);
  batch.Lookup(table.get(), true);
  EXPECT_EQ(table->counts().full, 600000);
  for (size_t i = 0; i < keys.size(); i += 9973) {
    ASSERT_EQ(batch.firsts[i], static_cast<int32_t>(keys[i]));
    ASSERT_EQ(batch.places[i], batch.places[keys[i]]);
    ASSERT_NE(batch.rows[i * 4], -1);
  }
  EXPECT_EQ(Batch(keys).Lookup(table.get(), false), batch.rows);
  // Index, headers and what chunks and segments leave unused, beyond weights.
  EXPECT_LT(table->bytes() / 6e5 - 16, 24);
}

TEST(ElasticTable, CountsStopAtTheirMaximum) {
  RowHeader header{1, 0, kLiveFlag | kCheckpointDirty};
  header.Count(RowHeader::kMaxCount - 1);
  header.Count(5);
  EXPECT_EQ(header.count(), RowHeader::kMaxCount);
  EXPECT_EQ(header.flags(), kLiveFlag | kCheckpointDirty);
}

TEST(ElasticTable, ComparesTheBytesOfStrings) {
  const auto table = MakeTable(R"({"key": "string"})");
  // Fingerprints collide: the bytes decide.
  Batch batch({9, 9, 9, 8}, {"one", "two", "one", "one"});
  batch.Lookup(table.get(), true);
  EXPECT_EQ(batch.firsts, (std::vector<int32_t>{0, 1, 0, 3}));
  EXPECT_EQ(table->counts().full, 3);
  batch.Update(table.get(), std::vector<float>(16, 1));
  Batch one({9}, {"one"}), two({9}, {"two"}), three({9}, {"three"});
  EXPECT_FLOAT_EQ(one.Lookup(table.get(), false)[0], batch.rows[0] - 2);
  EXPECT_FLOAT_EQ(two.Lookup(table.get(), false)[0], batch.rows[4] - 1);
  EXPECT_EQ(three.Lookup(table.get(), false)[0], 0);
  table->Evict(one.keys());
  EXPECT_EQ(one.Lookup(table.get(), false)[0], 0);
  EXPECT_FLOAT_EQ(two.Lookup(table.get(), false)[0], batch.rows[4] - 1);
}

TEST(ElasticTable, ReclaimsTheBytesOfEvictedStrings) {
  const auto table = MakeTable(R"({"key": "string"})");
  std::vector<std::string> texts;
  for (int round = 0; round < 20; ++round) {
    texts.assign(5000, "");
    std::vector<std::string_view> views;
    for (size_t i = 0; i < texts.size(); ++i) {
      texts[i] = "key " + std::to_string(round) + " " + std::to_string(i) + std::string(100, 'x');
      views.push_back(texts[i]);
    }
    Batch batch(Numbers(round * 5000, 5000), views);
    batch.Lookup(table.get(), true);
    ASSERT_EQ(batch.Lookup(table.get(), false).size(), 20000u);
    size_t found = 0;
    VisitAll(*table, [&](const RowView& row) { found += row.text == texts[row.key % 5000]; });
    ASSERT_EQ(found, 5000u);
    if (round == 19) break;
    EXPECT_EQ(table->Evict(batch.keys()), 5000u);
  }
  EXPECT_LT(table->bytes(), 5000 * (110 * 2.5 + 100));
}

TEST(ElasticTable, ReleasedRowsReadZerosAndComeBackWithNewSlots) {
  const auto table = MakeTable(kLasso);
  Batch batch(Numbers(0, 100));
  batch.Lookup(table.get(), true);
  const std::vector<float> gradients(400, 0.01f);
  for (int step = 0; step < 2; ++step) batch.Update(table.get(), gradients);
  EXPECT_EQ(table->counts().released, 100);
  EXPECT_EQ(table->counts().full, 0);
  EXPECT_EQ(table->counts().zero, 0);
  EXPECT_EQ(batch.Lookup(table.get(), false), std::vector<float>(400, 0));
  // A gradient past the threshold: the row is back, and the place that the lookup gave is that of the record.
  batch.Lookup(table.get(), true);
  ASSERT_TRUE(IsRecord(static_cast<uint32_t>(batch.places[0])));
  const UpdateResult result = batch.Update(table.get(), std::vector<float>(400, 1e6f));
  EXPECT_EQ(result.updated, 100u);
  EXPECT_EQ(table->counts().full, 100);
  EXPECT_EQ(table->counts().released, 0);
  EXPECT_LT(batch.Lookup(table.get(), false)[0], 0);
}

TEST(ElasticTable, UpdatesFindRowsThatCameBackElsewhere) {
  const auto table = MakeTable();
  Batch batch({1, 2, 3});
  batch.Lookup(table.get(), true);
  table->Evict(Batch({1, 2, 3}).keys());
  // The free rows of a segment are used again, by other keys too.
  Batch others(Numbers(1000, 3000));
  others.Lookup(table.get(), true);
  const std::vector<float> before = others.Lookup(table.get(), false);
  Batch({3}).Lookup(table.get(), true);
  EXPECT_EQ(batch.Update(table.get(), std::vector<float>(12, 1)).updated, 1u);
  EXPECT_EQ(others.Lookup(table.get(), false), before);
  EXPECT_EQ(Batch({3}).Lookup(table.get(), false)[0], batch.rows[8] - 1);
}

TEST(ElasticTable, SurvivesWrongFirsts) {
  const auto table = MakeTable(kLasso);
  Batch batch(std::vector<uint64_t>(40, 5));
  for (int step = 0; step < 4; ++step) {
    batch.Lookup(table.get(), true);
    for (int32_t i = 0; i < 40; ++i) batch.firsts[i] = i;
    batch.Update(table.get(), std::vector<float>(160, 0.01f));
  }
  EXPECT_EQ(table->counts().full + table->counts().released, 1);
}

TEST(ElasticTable, SweepsEvictAndReleaseWhatTheyDecide) {
  const auto table = MakeTable(kLasso);
  Batch batch(Numbers(0, 200000));
  batch.Lookup(table.get(), true);
  table->Follow();
  size_t visits = 0;
  uint64_t cursor = 0;
  do {
    cursor = table->Sweep(cursor, [&](const RowView& row) {
      ++visits;
      return row.key % 4 == 0 ? RowFate::kEvict : row.key % 4 == 1 ? RowFate::kRelease : RowFate::kKeep;
    });
  } while (cursor != 0);
  EXPECT_EQ(visits, 200000u);
  EXPECT_EQ(table->counts().full, 100000);
  EXPECT_EQ(table->counts().released, 50000);
  const std::vector<float> trained = batch.rows;
  batch.Lookup(table.get(), false);
  for (size_t i = 0; i < 200000; ++i) ASSERT_EQ(batch.rows[i * 4], i % 4 < 2 ? 0 : trained[i * 4]);
  const Changes changes = ChangesOf(table.get());
  EXPECT_EQ(changes.evicted.size(), 50000u);
  EXPECT_EQ(changes.rows.size(), 150000u);
  EXPECT_EQ(changes.rows.at(1), RowKind::kReleased);
  // What was evicted makes room for as much.
  const size_t bytes = table->bytes();
  Batch(Numbers(1000000, 50000)).Lookup(table.get(), true);
  EXPECT_LT(table->bytes(), bytes * 1.05);
}

// Random steps of all kinds beside a map of what each key has.
TEST(ElasticTable, AgreesWithAMap) {
  const auto table = MakeTable();
  std::mt19937 random(3);
  std::map<uint64_t, std::vector<float>> expected;
  for (int step = 0; step < 400; ++step) {
    std::vector<uint64_t> keys(random() % 300);
    for (uint64_t& key : keys) key = random() % 3000 - 1500;
    Batch batch(keys);
    const bool training = random() % 3 != 0;
    batch.Lookup(table.get(), training);
    std::vector<float> gradients(4 * keys.size());
    for (float& gradient : gradients) gradient = static_cast<float>(random() % 100);
    for (size_t i = 0; i < keys.size(); ++i) {
      const std::vector<float> row(&batch.rows[4 * i], &batch.rows[4 * i] + 4);
      const auto found = expected.find(keys[i]);
      if (found != expected.end()) {
        ASSERT_EQ(row, found->second);
      } else if (training) {
        expected[keys[i]] = row;
      } else {
        ASSERT_EQ(row, std::vector<float>(4, 0));
      }
    }
    if (training) {
      batch.Update(table.get(), gradients);
      std::map<uint64_t, std::vector<float>> sums;
      for (size_t i = 0; i < keys.size(); ++i) {
        std::vector<float>& sum = sums.emplace(keys[i], std::vector<float>(4, 0)).first->second;
        for (int j = 0; j < 4; ++j) sum[j] += gradients[4 * i + j];
      }
      for (const auto& [key, sum] : sums) {
        for (int j = 0; j < 4; ++j) expected[key][j] -= sum[j];
      }
    } else {
      table->Evict(batch.keys());
      for (const uint64_t key : keys) expected.erase(key);
    }
  }
  size_t rows = 0;
  VisitAll(*table, [&](const RowView& row) {
    ++rows;
    ASSERT_EQ(std::vector<float>(row.weights, row.weights + 4), expected.at(row.key));
  });
  EXPECT_EQ(rows, expected.size());
}

}  // namespace
}  // namespace elastic_training
