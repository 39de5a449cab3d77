// SPDX-License-Identifier: Apache-2.0
// Dot products of pairs against loops, for each instruction set.
#include "src/kernels/dot_interaction.h"

#include "naive.h"

namespace processor {
namespace {

std::vector<double> Products(const std::vector<float>& src, int64_t rows, int64_t fields, int64_t dim,
                             const std::vector<int64_t>& pairs) {
  std::vector<double> products;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t pair : pairs) {
      double sum = 0;
      for (int64_t e = 0; pair >= 0 && e < dim; ++e) {
        sum += static_cast<double>(src[(row * fields + pair / fields) * dim + e]) *
               src[(row * fields + pair % fields) * dim + e];
      }
      products.push_back(sum);
    }
  }
  return products;
}

std::vector<float> ComputeProducts(const std::vector<float>& src, int64_t rows, int64_t fields, int64_t dim,
                                   const std::vector<int64_t>& pairs, Isa isa) {
  const DotPairs kernel(pairs, fields);
  // What it works in may hold anything.
  std::vector<float> scratch(kernel.scratch(dim), NAN), dst(rows * pairs.size(), -7);
  kernel.Rows(src.data(), rows, dim, scratch.data(), dst.data(), isa);
  return dst;
}

TEST(DotInteraction, EqualsLoops) {
  for (Isa isa : SupportedIsas()) {
    for (int64_t rows : {0, 1, 3}) {
      for (int64_t fields : {1, 2, 5, 16, 17, 27, 33}) {
        for (int64_t dim : {1, 7, 8, 16, 31}) {
          SCOPED_TRACE(testing::Message() << IsaName(isa) << " " << rows << "x" << fields << "x" << dim);
          std::vector<int64_t> pairs;
          for (int64_t i = 0; i < fields; ++i) {
            for (int64_t j = 0; j <= i; ++j) pairs.push_back((i + j) % 2 ? i * fields + j : j * fields + i);
          }
          const std::vector<float> src = SomeFloats(rows * fields * dim);
          ExpectNear(ComputeProducts(src, rows, fields, dim, pairs, isa), Products(src, rows, fields, dim, pairs));
        }
      }
    }
  }
}

TEST(DotInteraction, WritesPairsInOrderAndZeros) {
  const std::vector<int64_t> pairs = {-1, 5, 1, 1, 3, 8, -1};
  const std::vector<float> src = SomeFloats(2 * 3 * 5);
  for (Isa isa : SupportedIsas()) {
    ExpectNear(ComputeProducts(src, 2, 3, 5, pairs, isa), Products(src, 2, 3, 5, pairs));
  }
}

TEST(DotInteraction, AcceptsNoPairsAndNoElements) {
  for (Isa isa : SupportedIsas()) {
    EXPECT_TRUE(ComputeProducts(SomeFloats(6), 2, 3, 1, {}, isa).empty());
    ExpectNear(ComputeProducts({}, 2, 3, 0, {1, 2}, isa), {0, 0, 0, 0});
  }
}

}  // namespace
}  // namespace processor
