// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "src/admission/admission.h"
#include "src/admission/fingerprint_counts.h"
#include "src/base/hash.h"

namespace elastic_training {
namespace {

bool Meets(Admission* filter, uint64_t key, uint32_t times = 1, uint32_t seconds = 0, uint64_t occurrences = 0) {
  return filter->Admit({HashKey(key), times, times}, {0, occurrences, seconds});
}

std::unique_ptr<Admission> Filter(const nlohmann::json& config) { return Admission::Create(config, 1); }

TEST(CountingFilter, AdmitsAtTheThresholdAndStartsAgain) {
  const auto filter = Filter({{"kind", "counting_filter"}, {"threshold", 3}, {"expected_keys", 1000}});
  EXPECT_FALSE(filter->table_counts());
  for (int round = 0; round < 2; ++round) {
    EXPECT_FALSE(Meets(filter.get(), 7));
    EXPECT_FALSE(Meets(filter.get(), 7));
    EXPECT_TRUE(Meets(filter.get(), 7));  // The count is removed: after an eviction the key is new.
  }
  EXPECT_FALSE(Meets(filter.get(), 8, 2));
  EXPECT_TRUE(Meets(filter.get(), 8, 5));
  EXPECT_TRUE(Meets(filter.get(), 9, 1u << 24));
}

TEST(CountingFilter, TakesAtMost24BitsAKey) {
  for (uint64_t keys : {1'000'000, 3'000'000}) {
    const FingerprintCounts counts(keys);
    EXPECT_LE(counts.bytes() * 8.0 / keys, 24.0);
  }
}

// Errors at the expected number of keys, all with distinct counts that are known. Too high: 12 bits in common with one of
// the other cells of a bucket. Too low: keys of buckets that have more than 31.
TEST(CountingFilter, ErrorsStayWithinTheirBounds) {
  const uint64_t keys = 200'000;
  FingerprintCounts counts(keys);
  for (int round = 0; round < 3; ++round) {
    for (uint64_t key = 0; key < keys; ++key) counts.Add(HashKey(key), 1, 15, 0);
  }
  uint64_t high = 0, low = 0;
  for (uint64_t key = 0; key < keys; ++key) {
    const uint32_t count = counts.Add(HashKey(key), 1, 15, 0);
    high += count > 4;
    low += count < 4;
  }
  // A bucket's number of keys is Poisson with the mean 21.4: P(another key of a bucket has the same 12 bits) and P(X > 31).
  const double mean = 21.4;
  double full = 0;  // Share of keys in buckets with more than 31.
  for (int x = 32; x < 120; ++x) full += x / mean * std::exp(-mean + x * std::log(mean) - std::lgamma(x + 1.0));
  const double shared = mean / 4096;
  EXPECT_LT(high, keys * shared * 1.1 + 60);
  EXPECT_GT(high, keys * shared * 0.8);
  EXPECT_LT(low, keys * full * 1.1 + 60);
  EXPECT_LT(full, 0.04);
}

TEST(CountingFilter, CountsHalveWithEveryHalfLife) {
  FingerprintCounts counts(100);
  EXPECT_EQ(counts.Add(HashKey(1), 13, 15, 40), 13u);
  // Reading ages nothing.
  EXPECT_EQ(counts.Count(HashKey(1), 42), 3u);
  EXPECT_EQ(counts.Count(HashKey(1), 40), 13u);
  EXPECT_EQ(counts.Count(HashKey(2), 40), 0u);
  EXPECT_EQ(counts.Add(HashKey(1), 1, 15, 41), 7u);  // 13 / 2 + 1
  EXPECT_EQ(counts.Add(HashKey(1), 1, 15, 41), 8u);
  EXPECT_EQ(counts.Add(HashKey(1), 1, 15, 43), 3u);  // 8 / 4 + 1
  EXPECT_EQ(counts.Add(HashKey(1), 1, 15, 42), 4u);  // A clock that went back ages nothing.
  EXPECT_EQ(counts.Add(HashKey(1), 1, 15, 1000), 1u);
  EXPECT_EQ(counts.used(), 1u);
}

TEST(CountingFilter, AgesByTimeOrByOccurrences) {
  const auto by_time = Filter({{"kind", "counting_filter"}, {"threshold", 4}, {"half_life_s", 100}});
  EXPECT_FALSE(Meets(by_time.get(), 1, 3, 1050));
  EXPECT_FALSE(Meets(by_time.get(), 1, 1, 1250));
  EXPECT_FALSE(Meets(by_time.get(), 1, 2, 1250));
  EXPECT_TRUE(Meets(by_time.get(), 1, 1, 1299));
  const auto by_stream = Filter({{"kind", "counting_filter"}, {"threshold", 4}, {"half_life_occurrences", 1000}});
  EXPECT_FALSE(Meets(by_stream.get(), 1, 3, 0, 999));
  EXPECT_FALSE(Meets(by_stream.get(), 1, 2, 0, 1000));
  EXPECT_TRUE(Meets(by_stream.get(), 1, 1, 0, 1001));
}

// Against exact counts that age in the same way.
TEST(CountingFilter, FollowsExactCountsThatAge) {
  const nlohmann::json config = {
      {"kind", "counting_filter"}, {"threshold", 5}, {"expected_keys", 50000}, {"half_life_occurrences", 40000}};
  const auto filter = Filter(config);
  std::mt19937_64 random(3);
  std::map<uint64_t, std::pair<uint32_t, uint64_t>> exact;  // Key: count, age of its bucket's last touch as its own.
  uint64_t different = 0;
  const uint64_t steps = 300000;
  for (uint64_t step = 0; step < steps; ++step) {
    const uint64_t key =
        static_cast<uint64_t>(std::exp(std::uniform_real_distribution<>(0, std::log(60000.0))(random)));
    auto& [count, age] = exact[key];
    // Halvings of rounded counts can be applied late: shifts add up.
    count = (count >> std::min<uint64_t>(31, step / 40000 - age)) + 1;
    age = step / 40000;
    const bool admitted = count >= 5;
    if (admitted) count = 0;
    different += Meets(filter.get(), key, 1, 0, step) != admitted;
  }
  EXPECT_LT(different, steps * 0.004);
}

TEST(CountingFilter, StateRoundTripsExactly) {
  const nlohmann::json config = {
      {"kind", "counting_filter"}, {"threshold", 5}, {"expected_keys", 20000}, {"half_life_s", 50}};
  const auto first = Filter(config);
  std::mt19937_64 random(5);
  for (int i = 0; i < 50000; ++i) Meets(first.get(), random() % 15000, 1, i / 1000);
  const std::string state = first->Save();
  const auto second = Filter(config);
  second->Restore(state);
  EXPECT_EQ(second->Save(), state);
  for (int i = 0; i < 50000; ++i) {
    const uint64_t key = random() % 15000;
    ASSERT_EQ(Meets(first.get(), key, 1, 50 + i / 1000), Meets(second.get(), key, 1, 50 + i / 1000));
  }
}

TEST(CountingFilter, RefusesStatesOfOthers) {
  const auto filter = Filter({{"kind", "counting_filter"}, {"threshold", 5}, {"expected_keys", 2000}});
  const std::string state = filter->Save();
  const auto refuses = [](const nlohmann::json& config, const std::string& bytes, const std::string& text) {
    try {
      Filter(config)->Restore(bytes);
      ADD_FAILURE() << "not refused: " << text;
    } catch (const std::invalid_argument& error) {
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
  };
  nlohmann::json config = {{"kind", "counting_filter"}, {"threshold", 5}, {"expected_keys", 2000}};
  refuses(config, "", "empty state");
  refuses(config, state.substr(0, 20), "ends early");
  refuses(config, state.substr(0, state.size() - 1), "bytes of counts found");
  refuses({{"kind", "poisson"}}, state, "'counting filter'");
  config["threshold"] = 6;
  refuses(config, state, "threshold is 5");
  config["threshold"] = 5;
  config["expected_keys"] = 4000;
  refuses(config, state, "expected_keys");
  config["half_life_s"] = 3;
  refuses(config, state, "half_life_s is 0");
}

TEST(CountingFilter, RefusesSettingsItCannotKeep) {
  EXPECT_THROW(Filter({{"kind", "counting_filter"}, {"threshold", 16}}), std::invalid_argument);
  EXPECT_THROW(Filter({{"kind", "counting_filter"}, {"half_life_s", 1}, {"half_life_occurrences", 1}}),
               std::invalid_argument);
  EXPECT_THROW(Filter({{"kind", "counting_filter"}, {"limit", 3}}), std::invalid_argument);
}

// Threads add to the same keys while states are cut: no count is lost, and each cut is one of an instant. Every thread adds
// a key of a low number before the one of the same rank with a high number, so a cut never has more of the second.
TEST(CountingFilter, CutsAreConsistentWhileThreadsAdd) {
  const uint64_t keys = 40'000;
  const nlohmann::json config = {{"kind", "counting_filter"}, {"threshold", 15}, {"expected_keys", keys}};
  const auto filter = Filter(config);
  std::mutex writers;  // The caller stops writers for BeginCut only.
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 2; ++thread) {
    threads.emplace_back([&, thread] {
      std::mt19937_64 random(thread);
      while (!stop) {
        std::lock_guard<std::mutex> lock(writers);
        for (int i = 0; i < 200; ++i) {
          const uint64_t key = random() % (keys / 4);
          Meets(filter.get(), key);
          Meets(filter.get(), key + keys / 4);
        }
      }
    });
  }
  for (int cut = 0; cut < 3; ++cut) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    {
      std::lock_guard<std::mutex> lock(writers);
      filter->BeginCut();
    }
    const std::string state = filter->Save();
    const auto copy = Filter(config);
    copy->Restore(state);
    uint64_t differing = 0;
    for (uint64_t key = 0; key < keys / 4; ++key) {
      // The count is 15 minus how many times the key must be met again.
      const auto left = [&](uint64_t one) {
        int times = 1;
        while (!Meets(copy.get(), one)) ++times;
        return times;
      };
      differing += left(key) != left(key + keys / 4);
    }
    // Cells that keys share make the rest.
    EXPECT_LT(differing, keys / 4 * 0.03);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace elastic_training
