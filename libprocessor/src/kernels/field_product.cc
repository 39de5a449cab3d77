// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/field_product.h"

#include <algorithm>
#include <cmath>

#include "src/kernels/vector_loops.h"

namespace processor {
namespace {

// Rows that a pair's matrix is read for at a time, while it is in the cache.
constexpr int64_t kRowsPerMatrix = 16;

struct Operands {
  const float* src;
  int64_t rows;
  int64_t fields;
  int64_t dim;
  absl::Span<const int64_t> pairs;
  const float* kernel;
};

/// Σ_e y[e] · (Σ_f matrix[e, f] · x[f]), in the order in which models compute it: which sums of infinities are NaN depends on
/// that.
float InOrder(const float* x, const float* y, const float* matrix, int64_t dim, int64_t stride) {
  float product = 0;
  for (int64_t e = 0; e < dim; ++e, matrix += stride) {
    float sum = 0;
    for (int64_t f = 0; f < dim; ++f) sum += matrix[f] * x[f];
    product += sum * y[e];
  }
  return product;
}

/// Σ_e y[e] · matrix[e, :], each row of the matrix `stride` from the one before, times x.
template <int kLanes>
PROCESSOR_ALWAYS_INLINE float Bilinear(const float* x, const float* y, const float* matrix, int64_t dim, int64_t stride,
                                       float* scratch) {
  std::fill(scratch, scratch + dim, 0.0f);
  for (int64_t e = 0; e < dim; ++e, matrix += stride) {
    for (int64_t f = 0; f < dim; ++f) scratch[f] += y[e] * matrix[f];
  }
  const float product = Dot<kLanes>(scratch, x, dim);
  return std::isfinite(product) ? product : InOrder(x, y, matrix - dim * stride, dim, stride);
}

template <int kLanes>
PROCESSOR_ALWAYS_INLINE void Matrices(const Operands& all, float* scratch, float* dst) {
  const int64_t pairs = static_cast<int64_t>(all.pairs.size()), row_size = all.fields * all.dim;
  for (int64_t first = 0; first < all.rows; first += kRowsPerMatrix) {
    const int64_t end = std::min(first + kRowsPerMatrix, all.rows);
    for (int64_t pair = 0; pair < pairs; ++pair) {
      const int64_t i = all.pairs[pair] / all.fields, j = all.pairs[pair] % all.fields;
      for (int64_t row = first; row < end; ++row) {
        const float* vectors = all.src + row * row_size;
        dst[row * pairs + pair] = Bilinear<kLanes>(vectors + i * all.dim, vectors + j * all.dim,
                                                   all.kernel + pair * all.dim, all.dim, pairs * all.dim, scratch);
      }
    }
  }
}

template <int kLanes>
PROCESSOR_ALWAYS_INLINE void Vectors(const Operands& all, ProductKernel kind, float* scratch, float* dst) {
  const int64_t pairs = static_cast<int64_t>(all.pairs.size()), row_size = all.fields * all.dim;
  for (int64_t row = 0; row < all.rows; ++row) {
    for (int64_t pair = 0; pair < pairs; ++pair) {
      const float* x = all.src + row * row_size + all.pairs[pair] / all.fields * all.dim;
      const float* y = all.src + row * row_size + all.pairs[pair] % all.fields * all.dim;
      if (kind == ProductKernel::kScalar) {
        *dst++ = Dot<kLanes>(x, y, all.dim) * all.kernel[pair];
      } else {
        for (int64_t e = 0; e < all.dim; ++e) scratch[e] = x[e] * y[e];
        *dst++ = Dot<kLanes>(scratch, all.kernel + pair * all.dim, all.dim);
      }
    }
  }
}

template <int kLanes>
PROCESSOR_ALWAYS_INLINE void Products(const Operands& all, ProductKernel kind, float* scratch, float* dst) {
  if (kind == ProductKernel::kMatrix) {
    Matrices<kLanes>(all, scratch, dst);
  } else {
    Vectors<kLanes>(all, kind, scratch, dst);
  }
}

PROCESSOR_TARGET_AVX512 void ProductsAvx512(const Operands& all, ProductKernel kind, float* scratch, float* dst) {
  Products<kLanesAvx512>(all, kind, scratch, dst);
}

PROCESSOR_TARGET_AVX2 void ProductsAvx2(const Operands& all, ProductKernel kind, float* scratch, float* dst) {
  Products<kLanesAvx2>(all, kind, scratch, dst);
}

}  // namespace

void FieldProduct(const float* src, int64_t rows, int64_t fields, int64_t dim, absl::Span<const int64_t> pairs,
                  const float* kernel, ProductKernel kind, float* scratch, float* dst, Isa isa) {
  const Operands all{src, rows, fields, dim, pairs, kernel};
  switch (isa) {
    case Isa::kAvx512:
      return ProductsAvx512(all, kind, scratch, dst);
    case Isa::kAvx2:
      return ProductsAvx2(all, kind, scratch, dst);
    case Isa::kPlain:
      return Products<kLanesPlain>(all, kind, scratch, dst);
  }
}

}  // namespace processor
