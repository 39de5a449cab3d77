// SPDX-License-Identifier: Apache-2.0
// Products of fields against one multiplication for each, for each instruction set.
#include "src/kernels/field_outer.h"

#include <limits>

#include "naive.h"

namespace processor {
namespace {

TEST(FieldOuter, EqualsLoopsBitForBit) {
  for (Isa isa : SupportedIsas()) {
    for (int64_t fields : {1, 2, 7, 26}) {
      for (int64_t others : {1, 5, 16, 33}) {
        for (int64_t dim : {0, 1, 4, 13}) {
          SCOPED_TRACE(testing::Message() << IsaName(isa) << " " << fields << "x" << others << "x" << dim);
          std::vector<float> one = SomeFloats(fields * dim, 1), other = SomeFloats(others * dim, 2);
          std::vector<float> scratch(fields + others), dst(dim * fields * others, -7), expected;
          FieldOuter(one.data(), fields, other.data(), others, dim, scratch.data(), dst.data(), isa);
          for (int64_t e = 0; e < dim; ++e) {
            for (int64_t i = 0; i < fields; ++i) {
              for (int64_t j = 0; j < others; ++j) expected.push_back(one[i * dim + e] * other[j * dim + e]);
            }
          }
          EXPECT_EQ(dst, expected);
        }
      }
    }
  }
}

TEST(FieldOuter, KeepsNan) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> one = {std::numeric_limits<float>::quiet_NaN(), infinity}, other = {0, -1};
  for (Isa isa : SupportedIsas()) {
    std::vector<float> scratch(4), dst(4);
    FieldOuter(one.data(), 2, other.data(), 2, 1, scratch.data(), dst.data(), isa);
    EXPECT_TRUE(std::isnan(dst[0]) && std::isnan(dst[1]) && std::isnan(dst[2]));
    EXPECT_EQ(dst[3], -infinity);
  }
}

}  // namespace
}  // namespace processor
