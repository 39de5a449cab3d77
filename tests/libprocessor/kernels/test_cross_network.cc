// SPDX-License-Identifier: Apache-2.0
// The cross network against the recurrence that defines it, for each instruction set.
#include "src/kernels/cross_network.h"

#include "naive.h"

namespace processor {
namespace {

using Weights = std::vector<std::vector<float>>;

std::vector<double> Recurrence(const std::vector<float>& src, int64_t rows, int64_t width, const Weights& kernels,
                               const Weights& biases) {
  std::vector<double> x(src.begin(), src.end());
  for (int64_t row = 0; row < rows; ++row) {
    for (size_t layer = 0; layer < kernels.size(); ++layer) {
      double product = 0;
      for (int64_t i = 0; i < width; ++i) product += x[row * width + i] * kernels[layer][i];
      for (int64_t i = 0; i < width; ++i) {
        x[row * width + i] += src[row * width + i] * product + (biases.empty() ? 0 : biases[layer][i]);
      }
    }
  }
  return x;
}

std::vector<const float*> Pointers(const Weights& weights) {
  std::vector<const float*> pointers;
  for (const auto& matrix : weights) pointers.push_back(matrix.data());
  return pointers;
}

TEST(CrossVectors, EqualTheRecurrence) {
  for (Isa isa : SupportedIsas()) {
    for (int64_t rows : {0, 1, 5}) {
      for (int64_t width : {1, 7, 16, 31, 32, 33, 58, 127}) {
        for (int layers : {1, 2, 5}) {
          for (bool biased : {false, true}) {
            SCOPED_TRACE(testing::Message() << IsaName(isa) << " " << rows << "x" << width << " " << layers);
            Weights kernels, biases;
            for (int layer = 0; layer < layers; ++layer) {
              kernels.push_back(SomeFloats(width, 10 + layer));
              for (float& weight : kernels.back()) weight /= std::sqrt(static_cast<float>(width));
              if (biased) biases.push_back(SomeFloats(width, 20 + layer));
            }
            const std::vector<float> src = SomeFloats(rows * width);
            std::vector<float> dst(rows * width, -7);
            const CrossVectors cross(Pointers(kernels), Pointers(biases), width);
            cross.Rows(src.data(), rows, dst.data(), isa);
            ExpectNear(dst, Recurrence(src, rows, width, kernels, biases));
          }
        }
      }
    }
  }
}

std::vector<double> Product(const std::vector<double>& x, int64_t rows, const std::vector<float>& kernel, int64_t k,
                            int64_t n, bool transposed) {
  std::vector<double> product(rows * n, 0);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < k; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        product[row * n + j] += x[row * k + i] * kernel[transposed ? j * k + i : i * n + j];
      }
    }
  }
  return product;
}

void CheckMatrices(Isa isa, int64_t rows, int64_t width, int64_t rank, int layers, bool biased, bool transposed) {
  SCOPED_TRACE(testing::Message() << IsaName(isa) << " " << rows << "x" << width << " rank " << rank << " " << layers);
  Weights kernels, biases;
  for (int layer = 0; layer < layers; ++layer) {
    for (int i = 0; i < (rank ? 2 : 1); ++i) {
      kernels.push_back(SomeFloats(width * (rank ? rank : width), 10 * layer + i));
      for (float& weight : kernels.back()) weight /= std::sqrt(static_cast<float>(rank && i ? rank : width));
    }
    if (biased) biases.push_back(SomeFloats(width, 50 + layer));
  }
  const std::vector<float> src = SomeFloats(rows * width);
  const CrossMatrices cross(Pointers(kernels), Pointers(biases), width, rank, transposed);
  std::vector<float> scratch(cross.scratch(), NAN), dst(rows * width, -7);
  cross.Rows(src.data(), rows, scratch.data(), dst.data(), isa);

  std::vector<double> x(src.begin(), src.end());
  for (int layer = 0; layer < layers; ++layer) {
    std::vector<double> product = rank ? Product(Product(x, rows, kernels[2 * layer], width, rank, transposed), rows,
                                                 kernels[2 * layer + 1], rank, width, transposed)
                                       : Product(x, rows, kernels[layer], width, width, transposed);
    for (int64_t i = 0; i < rows * width; ++i) {
      x[i] += src[i] * (product[i] + (biased ? biases[layer][i % width] : 0));
    }
  }
  ExpectNear(dst, x);
}

TEST(CrossMatrices, EqualTheRecurrence) {
  for (Isa isa : SupportedIsas()) {
    for (int64_t rows : {0, 1, 47, 49}) {
      for (int64_t width : {1, 17, 64, 67}) {
        for (int layers : {1, 3}) {
          for (int64_t rank : {0, 1, 5}) CheckMatrices(isa, rows, width, rank, layers, layers == 3, rows % 2 == 0);
        }
      }
    }
  }
}

}  // namespace
}  // namespace processor
