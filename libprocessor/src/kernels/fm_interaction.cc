// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/fm_interaction.h"

#include <algorithm>

#include "src/kernels/vector_loops.h"

namespace processor {
namespace {

constexpr int64_t kChunk = 32;

/// Adds up one chunk of elements over all fields and writes 0.5 · (sum² − squares). With kSize 0, `size` elements.
template <int64_t kSize>
PROCESSOR_ALWAYS_INLINE void Chunk(const float* src, int64_t fields, int64_t dim, int64_t size, float* products) {
  const int64_t count = kSize > 0 ? kSize : size;
  float sums[kSize > 0 ? kSize : kChunk] = {}, squares[kSize > 0 ? kSize : kChunk] = {};
  for (int64_t field = 0; field < fields; ++field, src += dim) {
    for (int64_t i = 0; i < count; ++i) {
      sums[i] += src[i];
      squares[i] += src[i] * src[i];
    }
  }
  for (int64_t i = 0; i < count; ++i) products[i] = 0.5f * (sums[i] * sums[i] - squares[i]);
}

PROCESSOR_ALWAYS_INLINE void AnyChunk(const float* src, int64_t fields, int64_t dim, int64_t size, float* products) {
  // The usual sizes stay in registers.
  switch (size) {
    case 4:
      return Chunk<4>(src, fields, dim, size, products);
    case 8:
      return Chunk<8>(src, fields, dim, size, products);
    case 16:
      return Chunk<16>(src, fields, dim, size, products);
    case 32:
      return Chunk<32>(src, fields, dim, size, products);
    default:
      return Chunk<0>(src, fields, dim, size, products);
  }
}

PROCESSOR_ALWAYS_INLINE void Rows(const float* src, int64_t rows, int64_t fields, int64_t dim, FmOutput output,
                                  float* dst) {
  for (int64_t row = 0; row < rows; ++row, src += fields * dim) {
    if (output == FmOutput::kVector) {
      for (int64_t i = 0; i < dim; i += kChunk) AnyChunk(src + i, fields, dim, std::min(kChunk, dim - i), dst + i);
      dst += dim;
      continue;
    }
    float sum = 0;
    for (int64_t i = 0; i < dim; i += kChunk) {
      float products[kChunk];
      const int64_t size = std::min(kChunk, dim - i);
      AnyChunk(src + i, fields, dim, size, products);
      for (int64_t j = 0; j < size; ++j) sum += products[j];
    }
    *dst++ = sum;
  }
}

PROCESSOR_TARGET_AVX512 void FmRowsAvx512(const float* src, int64_t rows, int64_t fields, int64_t dim, FmOutput output,
                                          float* dst) {
  Rows(src, rows, fields, dim, output, dst);
}

PROCESSOR_TARGET_AVX2 void FmRowsAvx2(const float* src, int64_t rows, int64_t fields, int64_t dim, FmOutput output,
                                      float* dst) {
  Rows(src, rows, fields, dim, output, dst);
}

}  // namespace

void FmInteraction(const float* src, int64_t rows, int64_t fields, int64_t dim, FmOutput output, float* dst, Isa isa) {
  switch (isa) {
    case Isa::kAvx512:
      return FmRowsAvx512(src, rows, fields, dim, output, dst);
    case Isa::kAvx2:
      return FmRowsAvx2(src, rows, fields, dim, output, dst);
    case Isa::kPlain:
      return Rows(src, rows, fields, dim, output, dst);
  }
}

}  // namespace processor
