// SPDX-License-Identifier: Apache-2.0
// The pairwise term of factorization machines against the sum over pairs, for each instruction set.
#include "src/kernels/fm_interaction.h"

#include "naive.h"

namespace processor {
namespace {

std::vector<double> SumOverPairs(const std::vector<float>& src, int64_t rows, int64_t fields, int64_t dim,
                                 FmOutput output) {
  const int64_t width = output == FmOutput::kSum ? 1 : dim;
  std::vector<double> sums(rows * width, 0);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < fields; ++i) {
      for (int64_t j = 0; j < i; ++j) {
        for (int64_t e = 0; e < dim; ++e) {
          const double a = src[(row * fields + i) * dim + e], b = src[(row * fields + j) * dim + e];
          sums[row * width + (output == FmOutput::kSum ? 0 : e)] += a * b;
        }
      }
    }
  }
  return sums;
}

TEST(FmInteraction, EqualsTheSumOverPairs) {
  for (Isa isa : SupportedIsas()) {
    for (FmOutput output : {FmOutput::kSum, FmOutput::kVector}) {
      for (int64_t rows : {0, 1, 5}) {
        for (int64_t fields : {1, 2, 13, 26}) {
          for (int64_t dim : {1, 4, 7, 8, 16, 17, 31, 32, 33, 64, 67}) {
            SCOPED_TRACE(testing::Message() << IsaName(isa) << " " << rows << "x" << fields << "x" << dim);
            const std::vector<float> src = SomeFloats(rows * fields * dim);
            std::vector<float> dst(rows * (output == FmOutput::kSum ? 1 : dim), -7);
            FmInteraction(src.data(), rows, fields, dim, output, dst.data(), isa);
            ExpectNear(dst, SumOverPairs(src, rows, fields, dim, output));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace processor
