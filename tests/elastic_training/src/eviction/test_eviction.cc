// SPDX-License-Identifier: Apache-2.0
#include "src/eviction/eviction.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "src/cut/model_changes.h"

namespace elastic_training {
namespace {

using nlohmann::json;

constexpr size_t kWidth = 4;
constexpr uint32_t kDay = 86400;

json Strategy(const char* kind, json fields = json::object()) {
  fields["kind"] = kind;
  return fields;
}

// The vector must live as long as the batch.
KeyBatch BatchOf(const std::vector<int64_t>& keys) {
  KeyBatch batch;
  batch.keys = reinterpret_cast<const uint64_t*>(keys.data());
  batch.count = keys.size();
  return batch;
}

json Policy(json strategy, json triggers = json::array()) {
  return {{"strategy", std::move(strategy)}, {"triggers", std::move(triggers)}};
}

class SweptTable {
 public:
  explicit SweptTable(json eviction, json admission = {{"kind", "always"}}, json optimizer = {{"kind", "sgd"}})
      : table(TableConfig::Parse(json{
            {"version", 1},
            {"name", "items"},
            {"key", "int64"},
            {"dim", kWidth},
            {"seed", 3},
            {"initializer", {{"kind", "uniform"}, {"low", -1}, {"high", 1}}},
            {"default", {{"kind", "zeros"}}},
            {"optimizer", std::move(optimizer)},
            {"admission", std::move(admission)},
            {"eviction",
             std::move(eviction)}}.dump())),
        eviction(&table) {}

  /// One training lookup of each key.
  std::vector<float> Train(std::vector<int64_t> keys, uint32_t now) {
    std::vector<float> rows(keys.size() * kWidth);
    std::vector<int64_t> places(keys.size());
    std::vector<int32_t> firsts(keys.size());
    LookupRequest request;
    request.keys = BatchOf(keys);
    request.training = true;
    request.now = now;
    request.rows = rows.data();
    request.places = places.data();
    request.firsts = firsts.data();
    table.Lookup(request);
    return rows;
  }

  std::vector<float> Read(std::vector<int64_t> keys) {
    std::vector<float> rows(keys.size() * kWidth);
    LookupRequest request;
    request.keys = BatchOf(keys);
    request.rows = rows.data();
    table.Lookup(request);
    return rows;
  }

  void SetWeights(int64_t key, float value) {
    std::vector<float> weights(kWidth, value);
    const std::vector<int64_t> keys = {key};
    RowContents contents;
    contents.weights = weights.data();
    table.Insert(BatchOf(keys), contents);
  }

  std::map<int64_t, RowKind> Keys() const {
    std::map<int64_t, RowKind> keys;
    uint64_t cursor = 0;
    do {
      cursor = table.Visit(cursor, [&](const RowView& row) { keys[static_cast<int64_t>(row.key)] = row.kind; });
    } while (cursor != 0);
    return keys;
  }

  ElasticTable table;
  Eviction eviction;
};

std::vector<int64_t> Range(int64_t first, int64_t last) {
  std::vector<int64_t> keys(last - first);
  std::iota(keys.begin(), keys.end(), first);
  return keys;
}

TEST(Eviction, TtlEvictsWhatWasNotTouched) {
  SweptTable swept(Policy(Strategy("ttl", {{"days", 30}})));
  swept.Train(Range(0, 100), 0);
  swept.Train(Range(50, 150), 20 * kDay);
  EXPECT_EQ(swept.eviction.Run(30 * kDay), 0u);
  EXPECT_EQ(swept.eviction.Run(30 * kDay + 1), 50u);
  EXPECT_EQ(swept.Keys().size(), 100u);
  EXPECT_FALSE(swept.Keys().count(49));
  EXPECT_TRUE(swept.Keys().count(50));
  // Evicted keys read the default row; inference touches nothing.
  EXPECT_EQ(swept.Read({49}), std::vector<float>(kWidth, 0));
  swept.Read(Range(50, 150));
  EXPECT_EQ(swept.eviction.Run(50 * kDay + 1), 100u);
}

TEST(Eviction, CountsHalveWithTimeSinceTheLastTouch) {
  SweptTable swept(Policy(Strategy("count_decay", {{"half_life_days", 7}, {"minimum", 1}})));
  for (int time = 0; time < 4; ++time) swept.Train({1}, 0);
  for (int time = 0; time < 2; ++time) swept.Train({2}, 0);
  swept.Train({3}, 0);
  EXPECT_EQ(swept.eviction.Run(0), 0u);
  EXPECT_EQ(swept.eviction.Run(3600), 1u);  // Key 3, which is just below one.
  EXPECT_EQ(swept.eviction.Run(7 * kDay + 60), 1u);
  EXPECT_EQ(swept.eviction.Run(14 * kDay), 0u);
  EXPECT_EQ(swept.eviction.Run(14 * kDay + 60), 1u);
}

TEST(Eviction, NormEvictsSmallRowsButNoCandidates) {
  SweptTable swept(Policy(Strategy("l2_norm", {{"minimum", 0.5}})), {{"kind", "count"}, {"threshold", 3}});
  swept.Train({100, 101}, 0);
  swept.SetWeights(1, 0.24f);
  swept.SetWeights(2, -0.26f);
  EXPECT_EQ(swept.eviction.Run(0), 1u);
  EXPECT_EQ(swept.Keys(),
            (std::map<int64_t, RowKind>{{2, RowKind::kFull}, {100, RowKind::kCandidate}, {101, RowKind::kCandidate}}));
}

TEST(Eviction, ScoreWeighsCountsAndNorms) {
  SweptTable swept(Policy(Strategy("score", {{"count", 2}, {"norm", 1}, {"minimum", 3}})));
  swept.Train({1, 2, 2, 2}, 0);
  swept.SetWeights(1, 0.75f);  // 2 log 2 + 1.5 = 2.89
  swept.SetWeights(2, 0.25f);  // 2 log 4 + 0.5 = 3.27
  EXPECT_EQ(swept.eviction.Run(0), 1u);
  EXPECT_TRUE(swept.Keys().count(2));
}

TEST(Eviction, AnEvictedKeyComesBackAsNew) {
  SweptTable swept(Policy(Strategy("ttl", {{"days", 1}})), {{"kind", "count"}, {"threshold", 3}});
  swept.Train({7, 7}, 0);
  const std::vector<float> first = swept.Train({7}, 0);
  EXPECT_NE(first, std::vector<float>(kWidth, 0));
  swept.SetWeights(7, 9);
  ASSERT_EQ(swept.Read({7}), std::vector<float>(kWidth, 9));
  EXPECT_EQ(swept.eviction.Run(2 * kDay), 1u);
  // Absent and refused: the default row; then the initial row, not the trained one.
  EXPECT_EQ(swept.Read({7}), std::vector<float>(kWidth, 0));
  EXPECT_EQ(swept.Train({7}, 2 * kDay), std::vector<float>(kWidth, 0));
  EXPECT_EQ(swept.Train({7}, 2 * kDay), std::vector<float>(kWidth, 0));
  EXPECT_EQ(swept.Train({7}, 2 * kDay), first);
}

TEST(Eviction, PoissonFilterForgetsEvictedCandidates) {
  SweptTable swept(Policy(Strategy("ttl", {{"days", 1}})), {{"kind", "poisson"}, {"threshold", 5}});
  swept.Train(Range(0, 40), 0);
  swept.Train(Range(0, 10), 2 * kDay);
  EXPECT_EQ(swept.table.admission().Stats()["candidates"], 40);
  EXPECT_EQ(swept.eviction.Run(2 * kDay), 30u);
  EXPECT_EQ(swept.table.admission().Stats()["candidates"], 10);
}

TEST(Eviction, RowsOverTheLimitLeaveInTheOrderOfTheStrategy) {
  SweptTable swept(Policy(Strategy("ttl", {{"days", 300}}), {{{"kind", "rows"}, {"limit", 8000}, {"keep", 0.75}}}));
  for (uint32_t hour = 0; hour < 100; ++hour) {
    swept.Train(Range(hour * 100, hour * 100 + 100), hour * 3600);
  }
  swept.eviction.AfterUpdate(100 * 3600);
  for (int step = 0; step < 1000 && swept.eviction.running(); ++step) swept.eviction.AfterUpdate(100 * 3600);
  const auto keys = swept.Keys();
  EXPECT_NEAR(keys.size(), 6000, 150);
  // The oldest have left; the sample covers the whole table, so the cut is exact but for rows of equal age.
  EXPECT_GE(keys.begin()->first, 3900);
}

TEST(Eviction, LimitsOfSmallTablesActWithinAboutASecond) {
  SweptTable swept(Policy(Strategy("ttl", {{"days", 300}}), {{{"kind", "rows"}, {"limit", 1000}}}));
  int64_t most = 0;
  for (int64_t update = 0; update < 200; ++update) {
    const auto now = static_cast<uint32_t>(update / 8);
    swept.Train(Range(update * 200, update * 200 + 200), now);
    swept.eviction.AfterUpdate(now);
    most = std::max<int64_t>(most, swept.table.counts().full);
  }
  // A second brings 1,600 rows; a sweep takes an update or, on a busy machine, a few.
  EXPECT_LT(most, 5000);
  EXPECT_GT(swept.eviction.Stats()["sweeps"], 10);
}

TEST(Eviction, RowsOfEqualValuesLeaveByChance) {
  SweptTable swept(
      Policy(Strategy("count_decay", {{"minimum", 0}}), {{{"kind", "rows"}, {"limit", 10000}, {"keep", 0.5}}}));
  swept.Train(Range(0, 20000), 5);
  EXPECT_NEAR(swept.eviction.Run(5), 15000, 400);
  EXPECT_EQ(swept.eviction.Run(5), 0u);
}

TEST(Eviction, BytesOverTheLimitLeaveAndMemoryIsUsedAgain) {
  const double limit = 1.5e6;
  SweptTable swept(Policy(Strategy("ttl", {{"days", 300}}), {{{"kind", "bytes"}, {"limit", limit}, {"keep", 0.8}}}));
  size_t most = 0;
  for (uint32_t hour = 0; hour < 100; ++hour) {
    swept.Train(Range(hour * 1000, hour * 1000 + 1000), hour * 3600);
    do {
      swept.eviction.AfterUpdate(hour * 3600);
    } while (swept.eviction.running());
    most = std::max(most, swept.table.bytes());
  }
  // Without eviction 100,000 rows would take 4 MB.
  EXPECT_LT(most, limit * 1.3);
  EXPECT_GT(swept.Keys().size(), 10000u);
  EXPECT_TRUE(swept.Keys().count(99'999));
}

TEST(Eviction, IntervalBeginsSweeps) {
  SweptTable swept(Policy(Strategy("ttl", {{"days", 1}}), {{{"kind", "interval"}, {"seconds", 60}}}));
  swept.Train(Range(0, 100), 0);
  for (uint32_t now = 0; now < 600; ++now) {
    for (int update = 0; update < 20; ++update) swept.eviction.AfterUpdate(now);
  }
  EXPECT_EQ(swept.eviction.Stats()["sweeps"], 9);
  EXPECT_EQ(swept.Keys().size(), 100u);
}

TEST(Eviction, ATableWithoutEvictionKeepsAll) {
  SweptTable swept(json::object());
  swept.Train(Range(0, 100), 0);
  for (uint32_t now = 0; now < 1000; now += 10) swept.eviction.AfterUpdate(now * kDay);
  EXPECT_EQ(swept.eviction.Run(1000 * kDay), 0u);
  EXPECT_EQ(swept.Keys().size(), 100u);
}

TEST(Eviction, StepsAreShortAndCoverEveryRow) {
  SweptTable swept(Policy(Strategy("ttl", {{"days", 1}})));
  swept.Train(Range(0, 100'000), 0);
  // Steps so short that each stops within a segment.
  Eviction short_steps(&swept.table, 1e-6);
  EXPECT_EQ(short_steps.Run(2 * kDay), 100'000u);
  EXPECT_TRUE(swept.Keys().empty());
  EXPECT_EQ(swept.table.counts().full, 0);
}

TEST(Eviction, PublishersLearnOfEvictedKeys) {
  SweptTable swept(Policy(Strategy("ttl", {{"days", 1}})), {{"kind", "count"}, {"threshold", 2}});
  swept.Train({1, 1, 2, 2, 3}, 0);  // Key 3 stays a candidate, of which publishers do not know.
  swept.table.Follow();
  swept.Train({2}, kDay);
  EXPECT_EQ(swept.eviction.Run(kDay + 1), 2u);
  ModelChanges cut({&swept.table}, 1 << 20);
  EXPECT_EQ(cut.at(0).TakeEvicted().keys, (std::vector<uint64_t>{1}));
  EXPECT_EQ(cut.at(0).Read(1 << 20).keys, (std::vector<uint64_t>{2}));
}

TEST(Eviction, RefusesUnknownPoliciesByName) {
  const auto refuses = [](const json& eviction, const std::string& text) {
    try {
      SweptTable swept(eviction);
      ADD_FAILURE() << "not refused: " << eviction;
    } catch (const std::invalid_argument& error) {
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("'items'"), std::string::npos) << error.what();
    }
  };
  refuses({{"strategy", {{"kind", "lru"}}}}, "lru");
  refuses({{"strategy", {{"kind", "ttl"}, {"hours", 3}}}}, "hours");
  refuses({{"strategy", {{"kind", "ttl"}, {"days", -3}}}}, "days");
  refuses({{"trigger", json::array()}}, "trigger");
  refuses({{"triggers", {{"kind", "rows"}}}}, "array");
  refuses({{"triggers", {{{"kind", "memory"}}}}}, "memory");
  refuses({{"triggers", {{{"kind", "rows"}, {"limit", 0}}}}}, "limit");
}

// Two threads train, one reads, and sweeps evict all the time; rows stay whole, counts add up.
TEST(EvictionThreads, TrainingGoesOnDuringSweeps) {
  SweptTable swept(Policy(Strategy("ttl", {{"days", 1}}), {{{"kind", "rows"}, {"limit", 3000}, {"keep", 0.5}}}),
                   {{"kind", "poisson"}, {"threshold", 3}});
  std::atomic<bool> stop{false};
  std::atomic<uint32_t> clock{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 2; ++thread) {
    threads.emplace_back([&, thread] {
      std::mt19937_64 random(thread);
      while (!stop) {
        std::vector<int64_t> keys(256);
        for (int64_t& key : keys) key = static_cast<int64_t>(std::pow(random() % 20000 / 20000.0, 3) * 20000);
        std::vector<float> rows(keys.size() * kWidth), gradients(keys.size() * kWidth, 0.125f);
        std::vector<int64_t> places(keys.size());
        std::vector<int32_t> firsts(keys.size());
        LookupRequest lookup;
        lookup.keys = BatchOf(keys);
        lookup.training = true;
        lookup.now = clock++;
        lookup.rows = rows.data();
        lookup.places = places.data();
        lookup.firsts = firsts.data();
        swept.table.Lookup(lookup);
        UpdateRequest update;
        update.keys = lookup.keys;
        update.places = places.data();
        update.firsts = firsts.data();
        update.gradients = gradients.data();
        const float hyper = 0;
        update.hyper = &hyper;
        swept.table.Update(update);
        swept.eviction.AfterUpdate(lookup.now);
      }
    });
  }
  threads.emplace_back([&] {
    std::vector<float> initial;
    while (!stop) swept.Read(Range(0, 500));
  });
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  do {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    swept.eviction.Run(clock);
  } while (swept.eviction.Stats()["sweep_evicted"] <= 5000 && std::chrono::steady_clock::now() < end);
  stop = true;
  for (std::thread& thread : threads) thread.join();
  int64_t full = 0;
  for (const auto& [key, kind] : swept.Keys()) full += kind == RowKind::kFull;
  EXPECT_EQ(full, swept.table.counts().full);
  EXPECT_GT(swept.eviction.Stats()["sweep_evicted"], 5000);
  // The learning rate was 0, so every row is the initial one of its key.
  const std::vector<float> rows = swept.Read(Range(0, 500));
  SweptTable fresh(json::object());
  const std::vector<float> initial = fresh.Train(Range(0, 500), 0);
  for (size_t i = 0; i < rows.size(); i += kWidth) {
    const bool absent = std::all_of(&rows[i], &rows[i] + kWidth, [](float x) { return x == 0; });
    EXPECT_TRUE(absent || std::equal(&rows[i], &rows[i] + kWidth, &initial[i])) << i / kWidth;
  }
}

}  // namespace
}  // namespace elastic_training
