// SPDX-License-Identifier: Apache-2.0
// Weighted products of pairs against loops, for each instruction set.
#include "src/kernels/field_product.h"

#include "naive.h"

namespace processor {
namespace {

std::vector<double> NaiveProducts(const std::vector<float>& src, int64_t rows, int64_t fields, int64_t dim,
                                  const std::vector<int64_t>& pairs, const std::vector<float>& kernel,
                                  ProductKernel kind) {
  std::vector<double> products;
  const int64_t count = static_cast<int64_t>(pairs.size());
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t p = 0; p < count; ++p) {
      const float* x = src.data() + (row * fields + pairs[p] / fields) * dim;
      const float* y = src.data() + (row * fields + pairs[p] % fields) * dim;
      double sum = 0;
      for (int64_t e = 0; e < dim; ++e) {
        if (kind == ProductKernel::kScalar) sum += static_cast<double>(kernel[p]) * x[e] * y[e];
        if (kind == ProductKernel::kVector) sum += static_cast<double>(kernel[p * dim + e]) * x[e] * y[e];
        for (int64_t f = 0; kind == ProductKernel::kMatrix && f < dim; ++f) {
          sum += static_cast<double>(kernel[(e * count + p) * dim + f]) * x[f] * y[e];
        }
      }
      products.push_back(sum);
    }
  }
  return products;
}

TEST(FieldProduct, EqualsLoops) {
  for (Isa isa : SupportedIsas()) {
    for (ProductKernel kind : {ProductKernel::kScalar, ProductKernel::kVector, ProductKernel::kMatrix}) {
      for (int64_t rows : {0, 1, 16, 19}) {
        for (int64_t fields : {1, 2, 7}) {
          for (int64_t dim : {1, 8, 13, 16, 33}) {
            SCOPED_TRACE(testing::Message() << IsaName(isa) << " " << rows << "x" << fields << "x" << dim);
            std::vector<int64_t> pairs;
            for (int64_t i = 0; i < fields; ++i) {
              for (int64_t j = i; j < fields; ++j) pairs.push_back(i * fields + j);
            }
            const int64_t weights = kind == ProductKernel::kScalar   ? 1
                                    : kind == ProductKernel::kVector ? dim
                                                                     : dim * dim;
            const std::vector<float> src = SomeFloats(rows * fields * dim);
            const std::vector<float> kernel = SomeFloats(pairs.size() * weights, 2);
            std::vector<float> scratch(dim, NAN), dst(rows * pairs.size(), -7);
            FieldProduct(src.data(), rows, fields, dim, pairs, kernel.data(), kind, scratch.data(), dst.data(), isa);
            ExpectNear(dst, NaiveProducts(src, rows, fields, dim, pairs, kernel, kind));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace processor
