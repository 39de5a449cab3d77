// SPDX-License-Identifier: Apache-2.0
// Copies of narrow rows, for every instruction set: of the golden files that graph-tools has written.
#include "src/kernels/widen_rows.h"

#include <gtest/gtest.h>

#include <cstring>
#include <future>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "src/tables/tiered_fetch.h"

namespace processor {
namespace {

constexpr uint32_t kGoldenRows = 24, kGoldenDim = 12;

std::shared_ptr<const EmbeddingTable> Golden(const std::string& name) {
  std::shared_ptr<const EmbeddingTable> table;
  const absl::Status status = EmbeddingTable::Open(std::string(PROCESSOR_GOLDEN) + "/table/" + name, &table);
  EXPECT_TRUE(status.ok()) << status;
  return table;
}

// As tests/graph_tools/store/test_narrow_rows.py has it.
float GoldenElement(uint32_t row, uint32_t e) {
  if (row == kGoldenRows) return -2;  // the default row
  if (e >= (row < 4 ? 12u : row < 14 ? 5u : 2u)) return 0;
  return static_cast<float>(static_cast<int>((row * 31 + e * 7) % 19) - 9) / 2;
}

std::vector<uint32_t> AllRows() {
  std::vector<uint32_t> numbers(kGoldenRows + 1);
  std::iota(numbers.begin(), numbers.end(), 0u);
  return numbers;
}

TEST(WidenRows, HalvesStayHalvesAndGetZeros) {
  const auto table = Golden("narrow_bf16_int64.emb");
  ASSERT_NE(table, nullptr);
  ASSERT_TRUE(table->copies_rows());
  ASSERT_EQ(CopiedRowType(*table), RowType::kBfloat16);
  const uint32_t stride = CopiedRowStride(*table);
  const std::vector<uint32_t> numbers = AllRows();
  std::vector<uint8_t> copies(numbers.size() * stride, 0xee);
  WidenRows(*table, nullptr, numbers, copies.data());
  for (const uint32_t number : numbers) {
    for (uint32_t e = 0; e < kGoldenDim; ++e) {
      uint32_t bits = 0;
      std::memcpy(reinterpret_cast<uint8_t*>(&bits) + 2, copies.data() + number * stride + 2 * e, 2);
      float value;
      std::memcpy(&value, &bits, 4);
      ASSERT_EQ(value, GoldenElement(number, e)) << number << " " << e;
    }
  }
}

TEST(WidenRows, CodesBecomeFloatsWithExactZeros) {
  const auto table = Golden("narrow_int8_string.emb");
  ASSERT_NE(table, nullptr);
  ASSERT_EQ(CopiedRowType(*table), RowType::kFloat32);
  ASSERT_EQ(CopiedRowStride(*table), 4 * kGoldenDim);
  const std::vector<uint32_t> numbers = AllRows();
  std::vector<float> plain(numbers.size() * kGoldenDim);
  WidenRows(*table, nullptr, numbers, reinterpret_cast<uint8_t*>(plain.data()), RowKernelsFor(Isa::kPlain));
  for (const uint32_t number : numbers) {
    for (uint32_t e = 0; e < kGoldenDim; ++e) {
      const float value = plain[number * kGoldenDim + e], expected = GoldenElement(number, e);
      if (e >= table->runs().Of(number).dim) {
        ASSERT_EQ(value, 0) << number << " " << e;
      } else {
        ASSERT_NEAR(value, expected, 0.02) << number << " " << e;
      }
    }
  }
  for (const Isa isa : SupportedIsas()) {
    std::vector<float> others(plain.size(), -1);
    WidenRows(*table, nullptr, numbers, reinterpret_cast<uint8_t*>(others.data()), RowKernelsFor(isa));
    EXPECT_EQ(std::memcmp(others.data(), plain.data(), plain.size() * sizeof(float)), 0) << IsaName(isa);
  }
}

TEST(WidenRows, ChangedRowsHaveFullWidth) {
  const auto table = Golden("narrow_bf16_int64.emb");
  ASSERT_NE(table, nullptr);
  const uint32_t stride = table->row_stride();
  // Rows of deltas begin above all rows of the file.
  const uint32_t first = kGoldenRows + 1;
  std::vector<uint8_t> changed((first + 2) * stride, 0);
  std::memset(changed.data() + (first + 1) * stride, 0x3f, 2 * kGoldenDim);
  const uint32_t numbers[] = {20, first + 1, kFirstSpecialRow, 3};
  std::vector<uint8_t> copies(4 * stride, 0xee);
  WidenRows(*table, changed.data(), numbers, copies.data());
  EXPECT_EQ(std::memcmp(copies.data() + stride, changed.data() + (first + 1) * stride, 2 * kGoldenDim), 0);
  EXPECT_EQ(copies[2 * stride], 0xee) << "a special row is not copied";
  EXPECT_EQ(copies[4], 0) << "row 20 has two elements";
}

// Fetches rows of a tiered table as a request does.
std::vector<uint8_t> Fetched(const EmbeddingTable& table, const uint8_t* changed, const std::vector<uint32_t>& numbers,
                             Isa isa, EarlyRowsList early = {}) {
  const uint32_t stride = CopiedRowStride(table);
  std::vector<uint8_t> copies(numbers.size() * stride, 0xee);
  TieredFetch fetch;
  fetch.Add(table.tiered(), numbers, stride, copies.data());
  const absl::Status status = fetch.Finish(early);
  EXPECT_TRUE(status.ok()) << status;
  std::vector<uint8_t> codes;
  WidenFetchedRows(table, changed, numbers, copies.data(), &codes, RowKernelsFor(isa));
  return copies;
}

TEST(WidenRows, RowsOfTieredTablesAreThoseOfMappedOnes) {
  for (const std::string name : {"narrow_bf16_int64.emb", "narrow_int8_string.emb"}) {
    const auto mapped = Golden(name);
    ASSERT_NE(mapped, nullptr);
    std::vector<uint32_t> numbers = AllRows();
    const uint32_t last_changed = kGoldenRows + 2;
    numbers.insert(numbers.begin() + 3, {last_changed, kFirstSpecialRow, 20});
    const std::vector<uint8_t> changed((last_changed + 1) * mapped->row_stride(), 0x3f);
    std::vector<uint8_t> expected(numbers.size() * CopiedRowStride(*mapped), 0xee);
    WidenRows(*mapped, changed.data(), numbers, expected.data());
    for (const bool reads_early : {false, true}) {
      std::shared_ptr<const EmbeddingTable> table;
      // Tables with other caches are others.
      const TableStorage storage{.tiered = true, .cache_share = reads_early ? 1.0 : 0.5, .share_folder = {}};
      const absl::Status status = EmbeddingTable::Open(mapped->path(), storage, &table);
      ASSERT_TRUE(status.ok()) << status;
      if (reads_early) {
        const auto early = std::make_shared<EarlyRows>(table);
        early->Want(table->tiered(), numbers);
        ASSERT_TRUE(early->Prepare());
        std::promise<void> ended;
        EarlyRows::Start(early, [&] { ended.set_value(); });
        ended.get_future().wait();
        early->Take();
        EXPECT_EQ(early->num_rows(), kGoldenRows + 1);
        EXPECT_EQ(Fetched(*table, changed.data(), numbers, Isa::kPlain, {early.get()}), expected);
        EXPECT_EQ(table->tiered()->stats().early_rows, kGoldenRows + 2);
      }
      for (const Isa isa : SupportedIsas()) {
        EXPECT_EQ(Fetched(*table, changed.data(), numbers, isa), expected) << name << " " << IsaName(isa);
      }
      EXPECT_EQ(table->tiered()->stats().reads, 1) << "all rows are in one block, and the caches have them then";
    }
  }
}

TEST(WidenRows, RunsAndStridesAreThoseOfTheFormat) {
  const auto table = Golden("narrow_bf16_int64.emb");
  ASSERT_NE(table, nullptr);
  ASSERT_EQ(table->runs().size(), 4);
  const RowRun& narrowest = table->runs()[2];
  EXPECT_EQ(narrowest.first, 14);
  EXPECT_EQ(narrowest.dim, 2);
  EXPECT_EQ(narrowest.stride, 4);
  EXPECT_EQ(NarrowStride(RowType::kFloat32, 5), 20);
  EXPECT_EQ(NarrowStride(RowType::kFloat32, 14), 64);
  EXPECT_EQ(NarrowStride(RowType::kFloat32, 60), 256);
  EXPECT_EQ(NarrowStride(RowType::kBfloat16, 1), 2);
  EXPECT_EQ(NarrowStride(RowType::kInt8, 9), 16);
}

}  // namespace
}  // namespace processor
