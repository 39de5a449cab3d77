// SPDX-License-Identifier: Apache-2.0
#include "src/tables/row_cache.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

namespace processor {
namespace {

constexpr uint32_t kRowBytes = 24;

std::vector<uint8_t> RowOf(uint32_t number) {
  std::vector<uint8_t> row(kRowBytes);
  for (uint32_t i = 0; i < kRowBytes; ++i) row[i] = static_cast<uint8_t>(number * 31 + i);
  return row;
}

// Reads rows as a request does: those that are missing are offered. Returns how many were found.
size_t Read(RowCache* cache, const std::vector<uint32_t>& numbers, uint64_t rows) {
  std::vector<uint8_t> dst(numbers.size() * kRowBytes);
  std::vector<uint32_t> missing(numbers.size());
  const size_t count = cache->Get(absl::MakeConstSpan(numbers), kRowBytes, dst.data(), missing.data());
  missing.resize(count);
  size_t next = 0;
  for (uint32_t i = 0; i < numbers.size(); ++i) {
    if (next < count && missing[next] == i) {
      cache->Offer(numbers[i], RowOf(numbers[i]).data());
      ++next;
    } else if (numbers[i] < rows) {
      EXPECT_EQ(std::memcmp(dst.data() + i * kRowBytes, RowOf(numbers[i]).data(), kRowBytes), 0) << numbers[i];
    }
  }
  return numbers.size() - count;
}

// Draws numbers by Zipf's law with exponent 1.05, scattered over the table.
class Zipf {
 public:
  explicit Zipf(uint32_t rows) : rows_(rows), end_(Integral(rows + 0.5)), begin_(Integral(0.5)) {}
  uint32_t operator()() {
    const double area = begin_ + uniform_(random_) * (end_ - begin_);
    const double rank = std::pow(area * kPower, 1 / kPower) + 0.5;
    return static_cast<uint32_t>(static_cast<uint64_t>(std::min<double>(rank, rows_)) * 2654435761u % rows_);
  }
  // The part of all draws that are of the `count` most frequent rows.
  double ShareOf(double count) const { return (Integral(count + 0.5) - begin_) / (end_ - begin_); }

 private:
  static constexpr double kPower = 1 - 1.05;
  static double Integral(double rank) { return std::pow(rank, kPower) / kPower; }

  uint32_t rows_;
  double end_, begin_;
  std::mt19937_64 random_{1};
  std::uniform_real_distribution<double> uniform_;
};

// Returns the part of reads by Zipf's law that hit once the cache is warm. Every `scan_every`-th batch scans instead.
double HitRate(RowCache* cache, Zipf* zipf, uint32_t rows, int batches, int scan_every) {
  size_t hits = 0, reads = 0;
  uint32_t scanned = 0;
  for (int batch = 0; batch < batches; ++batch) {
    const bool scans = scan_every != 0 && batch % scan_every == 0;
    std::vector<uint32_t> numbers(512);
    for (uint32_t& number : numbers) number = scans ? scanned++ % rows : (*zipf)();
    const size_t found = Read(cache, numbers, rows);
    if (scans || batch < batches / 2) continue;
    hits += found;
    reads += numbers.size();
  }
  return static_cast<double>(hits) / static_cast<double>(reads);
}

TEST(RowCache, HasTheMemoryThatItWasGiven) {
  for (const uint64_t bytes : {RowCache::LeastBytes(kRowBytes), uint64_t{100000}, uint64_t{1000003}}) {
    RowCache cache(bytes, kRowBytes, 1 << 30);
    EXPECT_LE(cache.bytes(), bytes);
    EXPECT_GT(cache.bytes(), bytes * 0.9 - 1000);
  }
  EXPECT_LT(RowCache(uint64_t{1} << 40, kRowBytes, 100).places(), 300) << "no more than a table has";
}

TEST(RowCache, FindsWhatWasOfferedAndPassesOverOtherNumbers) {
  RowCache cache(100000, kRowBytes, 1000);
  const std::vector<uint32_t> numbers = {7, 999, 0, 1000, 0xfffffffd, 7};
  EXPECT_EQ(Read(&cache, numbers, 1000), 2) << "numbers of no row are not missing";
  EXPECT_EQ(Read(&cache, numbers, 1000), 6);
  EXPECT_EQ(cache.used(), 3);
}

TEST(RowCache, KeepsWhatIsReadOftenBesideAScan) {
  constexpr uint32_t kRows = 20000;
  Zipf zipf(kRows);
  // A fifth of the table.
  RowCache cache(kRows / 5 * (kRowBytes + 64.0 / 12 + 4), kRowBytes, kRows);
  const double best = zipf.ShareOf(static_cast<double>(cache.places()));
  const double alone = HitRate(&cache, &zipf, kRows, 800, 0);
  const double with_scan = HitRate(&cache, &zipf, kRows, 800, 5);
  RecordProperty("best", std::to_string(best));
  RecordProperty("alone", std::to_string(alone));
  RecordProperty("with_scan", std::to_string(with_scan));
  EXPECT_GT(alone, best - 0.02);
  EXPECT_GT(with_scan, best - 0.04) << "a cache of what was read last loses more";
}

TEST(RowCache, FollowsWhatIsReadOften) {
  constexpr uint32_t kRows = 4000;
  RowCache cache(kRows / 10 * (kRowBytes + 64.0 / 12 + 4), kRowBytes, kRows);
  const auto read_from = [&](uint32_t first) {
    size_t found = 0;
    for (int round = 0; round < 400; ++round) {
      std::vector<uint32_t> numbers;
      for (uint32_t i = 0; i < 200; ++i) numbers.push_back(first + i);
      found = Read(&cache, numbers, kRows);
    }
    return found;
  };
  EXPECT_GT(read_from(0), 185);
  EXPECT_GT(read_from(2000), 185) << "the rows that were read before are no longer read";
}

TEST(RowCache, ThreadsReadWholeRows) {
  constexpr uint32_t kRows = 5000;
  RowCache cache(kRows / 10 * (kRowBytes + 64.0 / 12 + 4), kRowBytes, kRows);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&cache, t] {
      std::mt19937 random(t);
      for (int round = 0; round < 300; ++round) {
        std::vector<uint32_t> numbers(100);
        for (uint32_t& number : numbers) number = random() % (round % 2 == 0 ? 50 : kRows);
        Read(&cache, numbers, kRows);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(cache.used(), cache.places());
  EXPECT_GT(cache.used(), cache.places() / 2);
}

}  // namespace
}  // namespace processor
