// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/stats/histogram.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <thread>
#include <vector>

namespace processor {
namespace {

double Value(const nlohmann::json& summary, const char* key) { return summary.at(key).get<double>(); }

TEST(Histogram, IsZeroWhenEmpty) {
  const Histogram histogram;
  const nlohmann::json summary = Histogram::SummaryUs({&histogram});
  ASSERT_EQ(summary.size(), 7u);
  for (const auto& item : summary.items()) EXPECT_EQ(item.value().get<double>(), 0.0) << item.key();
}

TEST(Histogram, PercentilesAreWithinThreePercent) {
  Histogram histogram;
  for (int64_t ns = 1; ns <= 1000000; ++ns) histogram.Record(ns);
  const nlohmann::json summary = Histogram::SummaryUs({&histogram});
  EXPECT_EQ(summary.at("count").get<uint64_t>(), 1000000u);
  EXPECT_NEAR(Value(summary, "mean"), 500.0, 0.01);
  EXPECT_NEAR(Value(summary, "p50"), 500.0, 500.0 / 32);
  EXPECT_NEAR(Value(summary, "p95"), 950.0, 950.0 / 32);
  EXPECT_NEAR(Value(summary, "p99"), 990.0, 990.0 / 32);
  EXPECT_NEAR(Value(summary, "p99.9"), 999.0, 999.0 / 32);
  EXPECT_EQ(Value(summary, "max"), 1000.0);
}

TEST(Histogram, BucketsCoverEveryMagnitude) {
  for (int bits = 0; bits < 42; ++bits) {
    for (const int64_t ns : {int64_t{1} << bits, (int64_t{1} << bits) + (int64_t{1} << bits) / 3}) {
      Histogram histogram;
      histogram.Record(ns);
      histogram.Record(INT64_MAX / 4);  // so that the maximum does not hide where the bucket is
      EXPECT_NEAR(Value(Histogram::SummaryUs({&histogram}), "p50"), ns / 1e3, ns / 32e3 + 0.001) << ns;
    }
  }
}

TEST(Histogram, NoPercentileIsAboveTheMaximum) {
  Histogram histogram;
  histogram.Record(1000001);
  const nlohmann::json summary = Histogram::SummaryUs({&histogram});
  for (const char* key : {"p50", "p95", "p99", "p99.9"}) EXPECT_LE(Value(summary, key), 1000.001) << key;
}

TEST(Histogram, AcceptsNegativeAndHugeValues) {
  Histogram histogram;
  for (const int64_t ns : {INT64_MIN, int64_t{-1}, int64_t{0}}) histogram.Record(ns);
  EXPECT_EQ(Value(Histogram::SummaryUs({&histogram}), "max"), 0.0);
  histogram.Record(INT64_MAX);
  EXPECT_EQ(Histogram::SummaryUs({&histogram}).at("count").get<uint64_t>(), 4u);
}

TEST(Histogram, SummarizesSeveralHistogramsAsOne) {
  Histogram fast, slow;
  for (int i = 0; i < 99; ++i) fast.Record(1000);
  slow.Record(5000000);
  const nlohmann::json summary = Histogram::SummaryUs({&fast, &slow});
  EXPECT_EQ(summary.at("count").get<uint64_t>(), 100u);
  EXPECT_NEAR(Value(summary, "p99"), 1.0, 1.0 / 32);
  EXPECT_NEAR(Value(summary, "p99.9"), 5000.0, 5000.0 / 32);
  EXPECT_NEAR(Value(summary, "mean"), (99 * 1.0 + 5000.0) / 100, 0.001);
}

TEST(Histogram, CountsEveryValueOfEveryThread) {
  Histogram histogram;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&histogram] {
      for (int64_t n = 0; n < 20000; ++n) histogram.Record(n);
    });
  }
  for (int i = 0; i < 20; ++i) Histogram::SummaryUs({&histogram});
  for (std::thread& thread : threads) thread.join();
  const nlohmann::json summary = Histogram::SummaryUs({&histogram});
  EXPECT_EQ(summary.at("count").get<uint64_t>(), 160000u);
  EXPECT_NEAR(Value(summary, "mean"), 9.9995, 0.001);
}

}  // namespace
}  // namespace processor
