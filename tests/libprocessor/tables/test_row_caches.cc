// SPDX-License-Identifier: Apache-2.0
#include "src/tables/row_caches.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

namespace processor {
namespace {

// 1000 rows of 256 bytes, 3000 of 64, 6000 of 16 and four default rows.
RowRuns Runs() {
  TableHeader header;
  header.rows = 10000;
  header.default_rows = 4;
  header.dim = 64;
  header.row_stride = 256;
  header.num_narrow = 2;
  header.narrow = {{{1000, 16}, {4000, 4}}};
  return RowRuns(header);
}

std::vector<uint32_t> NumbersOf(uint32_t first, uint32_t count) {
  std::vector<uint32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

void OfferAll(RowCaches* caches, const RowRuns& runs) {
  for (uint32_t number = 0; number < 10004; ++number) {
    const std::vector<uint8_t> row(runs.Of(number).bytes, static_cast<uint8_t>(number % 251));
    caches->Offer(number, row.data());
  }
}

TEST(RowCaches, HaveAnEqualPartOfTheRowsOfEachWidth) {
  const RowRuns runs = Runs();
  double whole = 0;
  for (size_t run = 0; run < runs.size(); ++run) whole += runs[run].rows * RowCache::PlaceBytes(runs[run].bytes);
  const auto bytes = static_cast<uint64_t>(0.3 * whole);
  RowCaches caches(bytes, runs);
  EXPECT_LE(caches.bytes(), bytes + RowCache::LeastBytes(256)) << "the default rows have the least of all caches";
  EXPECT_GT(caches.bytes(), bytes * 0.95);
  OfferAll(&caches, runs);
  EXPECT_GT(caches.used(), caches.places() - 12);
  std::vector<uint32_t> missing(10005);
  for (size_t run = 0; run < 3; ++run) {
    const std::vector<uint32_t> numbers = NumbersOf(runs[run].first, runs[run].rows);
    const auto count = static_cast<double>(caches.FindMissing(numbers, missing.data()));
    EXPECT_NEAR(1 - count / runs[run].rows, 0.3, 0.02) << "rows of " << runs[run].bytes << " bytes";
  }
  EXPECT_EQ(caches.FindMissing(NumbersOf(10000, 4), missing.data()), 0);
}

TEST(RowCaches, GiveRowsOfAllWidths) {
  const RowRuns runs = Runs();
  RowCaches caches(uint64_t{2} << 20, runs);
  const std::vector<uint32_t> numbers = {9999, 3, 0xfffffff0u, 1000, 10003, 3, 3999, 0xffffffffu};
  std::vector<uint32_t> missing(numbers.size() + 1);
  std::vector<uint8_t> rows(numbers.size() * 256, 0xee);
  ASSERT_EQ(caches.Get(numbers, 256, rows.data(), missing.data()), 6);
  EXPECT_EQ(std::vector<uint32_t>(missing.begin(), missing.begin() + 6), (std::vector<uint32_t>{1, 5, 3, 6, 0, 4}))
      << "width by width";
  EXPECT_EQ(rows, std::vector<uint8_t>(rows.size(), 0xee));
  OfferAll(&caches, runs);
  EXPECT_EQ(caches.Get(numbers, 256, rows.data(), missing.data()), 0);
  for (size_t i = 0; i < numbers.size(); ++i) {
    std::vector<uint8_t> expected(256, 0xee);
    if (numbers[i] < 10004) std::memset(expected.data(), numbers[i] % 251, runs.Of(numbers[i]).bytes);
    EXPECT_EQ(std::memcmp(&rows[i * 256], expected.data(), 256), 0) << numbers[i];
  }
}

TEST(RowCaches, ATableWithoutRowsHasNone) {
  RowCaches caches(1000, RowRuns());
  uint32_t missing = 0;
  const uint32_t number = 0;
  EXPECT_EQ(caches.Get({&number, 1}, 4, nullptr, &missing), 0);
  EXPECT_EQ(caches.bytes(), 0);
}

}  // namespace
}  // namespace processor
