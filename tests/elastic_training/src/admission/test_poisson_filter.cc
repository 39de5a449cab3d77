// SPDX-License-Identifier: Apache-2.0
#include "src/admission/poisson_filter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "src/base/hash.h"

namespace elastic_training {
namespace {

std::vector<uint32_t> ZipfStream(size_t length, size_t keys, double exponent, uint64_t seed) {
  std::vector<double> sums(keys);
  double sum = 0;
  for (size_t key = 0; key < keys; ++key) sums[key] = sum += std::pow(key + 1.0, -exponent);
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(0, sum);
  std::vector<uint32_t> stream(length);
  for (uint32_t& key : stream) key = std::upper_bound(sums.begin(), sums.end(), uniform(random)) - sums.begin();
  return stream;
}

// Runs a filter as a table does: it counts candidates, and asks until a key is admitted.
class Table {
 public:
  Table(const nlohmann::json& config, size_t keys)
      : filter(Admission::Create(config, 11)), counted(keys), admitted(keys) {}

  /// Whether the occurrence is trained.
  bool Meet(uint32_t key, uint64_t position) {
    if (admitted[key]) return true;
    counted[key] += 1;
    admitted[key] = filter->Admit({HashKey(key), 1, filter->table_counts() ? counted[key] : 1}, {0, position, 0});
    return admitted[key];
  }

  std::unique_ptr<Admission> filter;
  std::vector<uint32_t> counted;
  std::vector<char> admitted;
};

struct Figures {
  double recovered;    // Share of the occurrences that exact counting loses after the first tenth.
  double rare_let_in;  // Share of the keys that end below the threshold.
  double early_new;    // Share of keys let in at first sight in the second tenth.
};

Figures Measure(const nlohmann::json& config, const std::vector<uint32_t>& stream, size_t keys) {
  std::vector<uint32_t> total(keys), seen(keys);
  for (uint32_t key : stream) ++total[key];
  Table table(config, keys);
  double lost = 0, lost_by_count = 0, first_sights = 0, let_in_at_once = 0;
  for (size_t i = 0; i < stream.size(); ++i) {
    const uint32_t key = stream[i];
    ++seen[key];
    const bool trained = table.Meet(key, i);
    if (i >= stream.size() / 10 && total[key] >= 5) {
      lost += !trained;
      lost_by_count += seen[key] < 5;
    }
    if (i >= stream.size() / 10 && i < stream.size() / 5 && seen[key] == 1) {
      first_sights += 1;
      let_in_at_once += trained;
    }
  }
  double rare = 0, rare_let_in = 0;
  for (size_t key = 0; key < keys; ++key) {
    rare += total[key] > 0 && total[key] < 5;
    rare_let_in += total[key] < 5 && table.admitted[key];
  }
  return {1 - lost / lost_by_count, rare_let_in / rare, let_in_at_once / first_sights};
}

nlohmann::json Config(const char* prior, size_t horizon) {
  return {{"kind", "poisson"}, {"threshold", 5}, {"prior", prior}, {"horizon", horizon}};
}

TEST(PoissonFilter, FittedPriorRecoversOccurrencesAndKeepsRareKeysOut) {
  const size_t length = 300'000, keys = 1'000'000;
  const std::vector<uint32_t> stream = ZipfStream(length, keys, 1.05, 1);
  const Figures fitted = Measure(Config("fitted", length), stream, keys);
  EXPECT_GE(fitted.recovered, 0.5);
  EXPECT_LE(fitted.rare_let_in, 0.05);
  EXPECT_LE(fitted.early_new, 0.01);
  const Figures published = Measure(Config("none", length), stream, keys);
  EXPECT_GE(published.early_new, 0.5) << "the published filter hardly filters early";
  EXPECT_GE(published.rare_let_in, 0.2);
  const Figures exact = Measure({{"kind", "count"}, {"threshold", 5}}, stream, keys);
  EXPECT_EQ(exact.recovered, 0);
  EXPECT_EQ(exact.rare_let_in, 0);

  nlohmann::json sketch = Config("fitted", length);
  sketch["expected_keys"] = 80'000;
  const Figures approximate = Measure(sketch, stream, keys);
  EXPECT_NEAR(approximate.recovered, fitted.recovered, 0.03);
  EXPECT_LE(approximate.rare_let_in, 0.05);
}

// Keys of a bounded number, nearly all of which come again: the budget, not the lowest cut, keeps rare keys out.
TEST(PoissonFilter, RareShareIsKeptWhenKeysAreFew) {
  const size_t length = 300'000, keys = 60'000;
  const std::vector<uint32_t> stream = ZipfStream(length, keys, 1.0, 2);
  const Figures figures = Measure(Config("fitted", length), stream, keys);
  EXPECT_GE(figures.recovered, 0.5);
  EXPECT_LE(figures.rare_let_in, 0.05);
  nlohmann::json strict = Config("fitted", length);
  strict["rare_share"] = 0.01;
  EXPECT_LE(Measure(strict, stream, keys).rare_let_in, 0.02);
}

TEST(PoissonFilter, CountsExactlyUntilThePriorIsKnown) {
  Table table(Config("fitted", 1'000'000), 1000);
  for (uint32_t key = 0; key < 40; ++key) {
    for (int time = 1; time <= 5; ++time) EXPECT_EQ(table.Meet(key, key * 5 + time), time == 5);
  }
}

TEST(PoissonFilter, AnEndlessStreamAsksForAsMuchAgain) {
  const size_t length = 300'000, keys = 1'000'000;
  const std::vector<uint32_t> stream = ZipfStream(length, keys, 1.1, 3);
  const Figures figures = Measure({{"kind", "poisson"}, {"threshold", 5}}, stream, keys);
  EXPECT_GE(figures.recovered, 0.4);
  EXPECT_LE(figures.rare_let_in, 0.08);  // Some that it lets in come after the end.
}

TEST(PoissonFilter, AnEvictedKeyStartsAsNew) {
  const size_t length = 100'000, keys = 300'000;
  const std::vector<uint32_t> stream = ZipfStream(length, keys, 1.05, 4);
  nlohmann::json config = Config("fitted", 2 * length);
  config["expected_keys"] = 50'000;
  Table table(config, keys);
  for (size_t i = 0; i < length; ++i) table.Meet(stream[i], i);
  ASSERT_TRUE(table.admitted[0]);
  table.admitted[0] = 0;  // Evicted.
  EXPECT_FALSE(table.Meet(0, length));
  int times = 1;
  while (!table.Meet(0, length)) ++times;
  EXPECT_LE(times, 4);
}

// The state includes the history, the prior and counts: both filters go on alike, fits included.
TEST(PoissonFilter, StateRoundTripsExactly) {
  const size_t length = 120'000, keys = 400'000;
  const std::vector<uint32_t> stream = ZipfStream(length, keys, 1.05, 5);
  for (const uint64_t sketch : {0, 40'000}) {
    nlohmann::json config = Config("fitted", length);
    if (sketch) config["expected_keys"] = sketch;
    Table first(config, keys);
    for (size_t i = 0; i < length / 2; ++i) first.Meet(stream[i], i);
    first.filter->BeginCut();
    Table second(config, keys);
    // What is met after BeginCut is not in the state.
    Table after(config, keys);
    const std::string state = first.filter->Save();
    after.filter->Restore(state);
    EXPECT_EQ(after.filter->Save(), state);
    second.filter->Restore(state);
    second.counted = first.counted;
    second.admitted = first.admitted;
    for (size_t i = length / 2; i < length; ++i) ASSERT_EQ(first.Meet(stream[i], i), second.Meet(stream[i], i)) << i;
    EXPECT_EQ(first.filter->Save(), second.filter->Save());
    EXPECT_NE(first.filter->Save(), state);
    EXPECT_GT(first.filter->Stats()["admitted_early"], 100);
  }
}

TEST(PoissonFilter, ACutIsOfItsInstant) {
  const size_t length = 60'000, keys = 100'000;
  const std::vector<uint32_t> stream = ZipfStream(length, keys, 1.05, 6);
  nlohmann::json config = Config("fitted", length);
  config["expected_keys"] = 40'000;
  Table cut(config, keys), stopped(config, keys);
  for (size_t i = 0; i < length / 2; ++i) cut.Meet(stream[i], i), stopped.Meet(stream[i], i);
  cut.filter->BeginCut();
  for (size_t i = length / 2; i < length; ++i) cut.Meet(stream[i], i);
  EXPECT_EQ(cut.filter->Save(), stopped.filter->Save());
}

TEST(PoissonFilter, ForgottenCandidatesLeaveTheCounts) {
  Table table(Config("fitted", 1'000'000), 1000);
  for (uint32_t key = 0; key < 10; ++key) table.Meet(key, 1), table.Meet(key, 2);
  EXPECT_EQ(table.filter->Stats()["candidates"], 10);
  table.filter->Forget(HashKey(3), 2);
  EXPECT_EQ(table.filter->Stats()["candidates"], 9);
  EXPECT_EQ(table.filter->Stats()["seen_keys"], 10);
}

TEST(PoissonFilter, ThreadsMeetKeysAtOnce) {
  const size_t length = 100'000, keys = 400'000;
  const std::vector<uint32_t> stream = ZipfStream(length, keys, 1.05, 8);
  for (const char* prior : {"fitted", "none"}) {
    nlohmann::json config = Config(prior, length);
    config["expected_keys"] = 40'000;
    const auto filter = Admission::Create(config, 3);
    std::atomic<uint64_t> position{1};
    std::atomic<int64_t> admitted{0};
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 3; ++thread) {
      threads.emplace_back([&, thread] {
        for (size_t i = thread; i < length; i += 3) {
          admitted += filter->Admit({HashKey(stream[i]), 1, 1}, {0, position++, 0});
          if (i % 1000 == 0) filter->Stats();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(filter->Stats()["admitted_keys"], admitted.load());
    EXPECT_GT(filter->Stats()["admitted_early"], 0);
  }
}

TEST(PoissonFilter, RefusesSettingsItCannotKeep) {
  for (const nlohmann::json& wrong : std::vector<nlohmann::json>{{{"threshold", 1}},
                                                                 {{"threshold", 16}, {"expected_keys", 100}},
                                                                 {{"prior", "gamma"}},
                                                                 {{"horizon", -1}},
                                                                 {{"rare_share", 0}},
                                                                 {{"horizont", 1}}}) {
    nlohmann::json config = {{"kind", "poisson"}};
    config.update(wrong);
    EXPECT_THROW(Admission::Create(config, 1), std::invalid_argument) << config;
  }
}

}  // namespace
}  // namespace elastic_training
