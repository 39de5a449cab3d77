// SPDX-License-Identifier: Apache-2.0
#include "src/tables/table_crc.h"

#include <gtest/gtest.h>

#include <random>

#include "table_file.h"

namespace processor {
namespace {

uint32_t Extend(uint32_t crc, const std::string& bytes) {
  return ExtendTableCrc(crc, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

TEST(TableCrc, EqualsStandardTestVectors) {
  EXPECT_EQ(Extend(0, "123456789"), 0xe3069283u);            // the catalog's check value
  EXPECT_EQ(Extend(0, std::string(32, '\0')), 0x8a9136aau);  // RFC 3720, B.4
  EXPECT_EQ(Extend(0, std::string(32, '\xff')), 0x62a8ab43u);
}

TEST(TableCrc, EqualsBytewiseComputation) {
  std::mt19937_64 random(4);
  std::string bytes;
  for (int i = 0; i < 30000; ++i) bytes += static_cast<char>(random());
  for (size_t size : {0, 1, 7, 24, 4095, 4096, 4097, 4119, 4120, 12288, 29999, 30000}) {
    for (size_t begin : {0, 1, 8}) {
      if (begin + size > bytes.size()) continue;
      const std::string part = bytes.substr(begin, size);
      EXPECT_EQ(Extend(0, part), Crc32c(part.data(), part.size())) << size;
      const size_t half = size / 3;
      EXPECT_EQ(Extend(Extend(0, part.substr(0, half)), part.substr(half)), Crc32c(part.data(), part.size())) << size;
    }
  }
}

}  // namespace
}  // namespace processor
