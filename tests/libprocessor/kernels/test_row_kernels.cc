// SPDX-License-Identifier: Apache-2.0
// Every instruction set's row kernels against loops over single elements, bit by bit.
#include "src/kernels/row_kernels.h"

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/kernels/row_fetcher.h"
#include "src/tables/table_header.h"

namespace processor {
namespace {

constexpr uint32_t kDims[] = {1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 100, 130};
constexpr RowType kTypes[] = {RowType::kFloat32, RowType::kBfloat16, RowType::kFloat16, RowType::kInt8, RowType::kInt4};

// A half to a float, by arithmetic.
float HalfValue(uint16_t half) {
  const int exponent = half >> 10 & 31;
  const int mantissa = half & 1023;
  float value = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                              : std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
  if (exponent == 31) value = mantissa == 0 ? INFINITY : NAN;
  return half & 0x8000 ? -value : value;
}

uint16_t Half(const uint8_t* bytes) { return static_cast<uint16_t>(bytes[0] | bytes[1] << 8); }

// As docs/table_format.md has it.
float ExpectedElement(RowType type, const uint8_t* row, uint32_t e) {
  switch (type) {
    case RowType::kFloat32: {
      float value;
      std::memcpy(&value, row + 4 * e, 4);
      return value;
    }
    case RowType::kBfloat16: {
      const uint32_t bits = uint32_t{Half(row + 2 * e)} << 16;
      float value;
      std::memcpy(&value, &bits, 4);
      return value;
    }
    case RowType::kFloat16:
      return HalfValue(Half(row + 2 * e));
    default:
      break;
  }
  const int q = type == RowType::kInt8 ? row[4 + e] : row[4 + e / 2] >> (e % 2 * 4) & 15;
  // A double holds the product exactly: it is rounded once, and so is the sum.
  const auto product = static_cast<float>(static_cast<double>(HalfValue(Half(row))) * q);
  return product + HalfValue(Half(row + 2));
}

// Rows of plain numbers that end where the vector ends, so that a read beyond them is one of foreign memory.
class Rows {
 public:
  static constexpr uint32_t kCount = 37;

  Rows(RowType type, uint32_t dim, uint32_t padding) : type_(type), dim_(dim) {
    const auto bytes = static_cast<uint32_t>(RowBytes(type, dim));
    stride_ = bytes + padding;
    bytes_.resize(stride_ * (kCount - 1) + bytes);
    std::mt19937 random(dim * 7 + static_cast<uint32_t>(type));
    for (uint8_t& byte : bytes_) byte = static_cast<uint8_t>(random());
    for (uint32_t r = 0; r < kCount; ++r) {
      uint8_t* row = bytes_.data() + r * stride_;
      if (type == RowType::kFloat32) {
        for (uint32_t e = 0; e < dim; ++e) {
          const float value = static_cast<float>(static_cast<int32_t>(random())) * 1e-9f;
          std::memcpy(row + 4 * e, &value, 4);
        }
      } else if (type == RowType::kBfloat16) {
        for (uint32_t e = 0; e < dim; ++e) row[2 * e + 1] = static_cast<uint8_t>(0x3e | (random() & 0x81));
      } else if (type == RowType::kFloat16) {
        for (uint32_t e = 0; e < dim; ++e) row[2 * e + 1] &= 0xbf;  // small ones, and those below the normal
      } else {
        row[1] = 0x20;
        row[3] &= 0xbb;
      }
    }
  }

  RowSource source() const { return {bytes_.data(), stride_, dim_}; }
  float At(uint32_t number, uint32_t e) const {
    return number >= kFirstSpecialRow ? 0 : ExpectedElement(type_, bytes_.data() + number * stride_, e);
  }

 private:
  RowType type_;
  uint32_t dim_, stride_;
  std::vector<uint8_t> bytes_;
};

std::vector<uint32_t> SomeNumbers(size_t n) {
  std::vector<uint32_t> numbers;
  std::mt19937 random(n);
  for (size_t i = 0; i < n; ++i) numbers.push_back(i % 7 == 3 ? kNoRow : random() % Rows::kCount);
  if (n > 0) numbers.back() = Rows::kCount - 1;
  return numbers;
}

class RowKernelsTest : public testing::TestWithParam<std::tuple<Isa, RowType, uint32_t>> {
 protected:
  Isa isa() const { return std::get<0>(GetParam()); }
  RowType type() const { return std::get<1>(GetParam()); }
  uint32_t dim() const { return std::get<2>(GetParam()); }
  int type_number() const { return static_cast<int>(type()); }
};

TEST_P(RowKernelsTest, CopiesSumsAndProductsEqualLoopsBitForBit) {
  const RowKernels& kernels = RowKernelsFor(isa());
  for (const uint32_t padding : {0u, 6u}) {
    const Rows rows(type(), dim(), padding);
    for (const size_t n : {0, 1, 2, 13}) {
      const std::vector<uint32_t> numbers = SomeNumbers(n);
      const size_t stride = dim() + 3;
      std::vector<float> copied(n * stride + 1, 7.0f), added(n * stride + 1, 0.25f), scaled(n * stride + 1, 0.3f);
      kernels.copy[type_number()](rows.source(), numbers.data(), n, copied.data(), stride);
      kernels.add[type_number()](rows.source(), numbers.data(), n, added.data(), stride);
      kernels.multiply[type_number()](rows.source(), numbers.data(), n, scaled.data(), stride);
      for (size_t i = 0; i < n; ++i) {
        for (uint32_t e = 0; e < stride; ++e) {
          const bool inside = e < dim();
          ASSERT_EQ(copied[i * stride + e], inside ? rows.At(numbers[i], e) : 7.0f) << i << " " << e;
          ASSERT_EQ(added[i * stride + e], inside ? 0.25f + rows.At(numbers[i], e) : 0.25f) << i << " " << e;
          ASSERT_EQ(scaled[i * stride + e], inside ? 0.3f * rows.At(numbers[i], e) : 0.3f) << i << " " << e;
        }
      }
      ASSERT_EQ(copied.back(), 7.0f);
      ASSERT_EQ(added.back(), 0.25f);
      ASSERT_EQ(scaled.back(), 0.3f);
    }
  }
}

TEST_P(RowKernelsTest, ProductsOfInfinitiesWithRowsOfZerosAreNaN) {
  const Rows rows(type(), dim(), 0);
  std::vector<float> scaled(dim(), INFINITY);
  RowKernelsFor(isa()).multiply[type_number()](rows.source(), &kNoRow, 1, scaled.data(), dim());
  for (const float value : scaled) ASSERT_TRUE(std::isnan(value));
}

TEST_P(RowKernelsTest, PoolingEqualsLoopsBitForBit) {
  const RowKernels& kernels = RowKernelsFor(isa());
  const Rows rows(type(), dim(), 2);
  for (const size_t n : {0, 1, 5, 23}) {
    const std::vector<uint32_t> numbers = SomeNumbers(n);
    std::vector<float> factors;
    for (size_t i = 0; i < n; ++i) factors.push_back(0.3f * static_cast<float>(i) - 1.0f);
    for (const float* weights : {static_cast<const float*>(nullptr), static_cast<const float*>(factors.data())}) {
      const float scale = 1.0f / 3;
      std::vector<float> pooled(dim() + 1, 7.0f), added(dim() + 1, 0.25f);
      kernels.pool[type_number()](rows.source(), numbers.data(), weights, n, scale, pooled.data());
      kernels.add_pooled[type_number()](rows.source(), numbers.data(), weights, n, scale, added.data());
      for (uint32_t e = 0; e < dim(); ++e) {
        float sum = 0;
        for (size_t i = 0; i < n; ++i) {
          const float value = rows.At(numbers[i], e);
          const float product = weights == nullptr || value == 0 ? value : value * weights[i];
          sum = sum + product;
        }
        const float scaled = sum * scale;
        ASSERT_EQ(pooled[e], scaled) << n << " " << e;
        ASSERT_EQ(added[e], 0.25f + scaled) << n << " " << e;
      }
      ASSERT_EQ(pooled.back(), 7.0f);
      ASSERT_EQ(added.back(), 0.25f);
    }
  }
}

std::string GridName(const testing::TestParamInfo<std::tuple<Isa, RowType, uint32_t>>& info) {
  static const char* const kNames[] = {"fp32", "bf16", "fp16", "int8", "int4"};
  return std::string(IsaName(std::get<0>(info.param))) + "_" + kNames[static_cast<int>(std::get<1>(info.param))] + "_" +
         std::to_string(std::get<2>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Grid, RowKernelsTest,
                         testing::Combine(testing::ValuesIn(SupportedIsas()), testing::ValuesIn(kTypes),
                                          testing::ValuesIn(kDims)),
                         GridName);

TEST(RowKernels, EveryHalfIsTheSameFloat) {
  std::vector<uint16_t> halves(1 << 16);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  const RowSource source{reinterpret_cast<const uint8_t*>(halves.data()), 32, 16};
  std::vector<uint32_t> numbers(halves.size() / 16);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<uint32_t>(i);
  for (const Isa isa : SupportedIsas()) {
    std::vector<float> floats(halves.size());
    RowKernelsFor(isa).copy[static_cast<int>(RowType::kFloat16)](source, numbers.data(), numbers.size(), floats.data(),
                                                                 16);
    for (size_t i = 0; i < halves.size(); ++i) {
      const float expected = HalfValue(halves[i]);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(floats[i])) << i;
      } else {
        ASSERT_EQ(floats[i], expected) << i << " " << IsaName(isa);
        ASSERT_EQ(std::signbit(floats[i]), std::signbit(expected)) << i;
      }
    }
  }
}

TEST(RowFetcher, FetchesRunsOfAnyLength) {
  const std::vector<uint8_t> bytes(64 * 100);
  const std::vector<uint32_t> numbers = SomeNumbers(1000);
  std::vector<RowFetcher::Run> runs;
  for (const size_t n : {0, 1, 1000, 0, 63, 64, 65, 1, 1, 0}) {
    runs.push_back({{bytes.data(), 64, 16}, 64, numbers.data(), n});
  }
  for (const size_t step : {1, 7, 16, 5000}) {
    RowFetcher fetcher(runs.data(), runs.size());
    for (const RowFetcher::Run& run : runs) {
      ASSERT_EQ(&fetcher.run(), &run);
      for (size_t i = 0; i < run.n; i += step) fetcher.Advance(std::min(step, run.n - i));
      fetcher.NextRun();
    }
  }
}

}  // namespace
}  // namespace processor
