// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "src/kernels/panel_matmul_strips.h"

namespace processor {
namespace {

// The widest strips: 6 x 4 and 14 x 2 vectors of sums fill the 32 registers, with what they are made of.
constexpr int kWideRows = 6;
constexpr int kTallRows = 14;

// Keeps loads that follow behind what comes before: all registers are taken.
#define PROCESSOR_LOAD_AFTER(pointer) asm volatile("" : "+r"(pointer))

template <int kRows, int kVectors, PanelType kType>
PROCESSOR_TARGET_AVX512 void Run(const Strip& s) {
  constexpr bool kFloat = kType == PanelType::kFloat32;
  // A second set of sums for every other row of weights hides the latency of additions where there are few.
  constexpr int kSets = kRows * kVectors < 8 ? 2 : 1;
  const __mmask16 last = static_cast<__mmask16>(0xffffu >> (16 - s.last_columns));
  // Three rows share a pointer: the third is at twice the stride, which an address may say.
  constexpr int kPointers = (kRows + 2) / 3;
  const int64_t stride = s.src_stride;
  const float* src[kPointers];
#pragma GCC unroll 16
  for (int p = 0; p < kPointers; ++p) src[p] = s.src + 3 * p * stride;
  const unsigned char *weights = s.weights, *fetch = s.fetch;
  // Narrow strips fetch for later panels, which need not come into the first-level cache yet.
  constexpr auto kHint = kVectors > 2 ? _MM_HINT_T0 : _MM_HINT_T1;
  // An empty sum is a turn too. `kSumLength` is even, so that only the last part may be odd.
  int64_t begin = 0;
  do {
    const int64_t length = std::min(kSumLength, s.k - begin);
    __m512 sums[kSets][kRows][kVectors];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        sums[0][r][v] = _mm512_setzero_ps();
        if constexpr (kSets == 2) sums[1][r][v] = _mm512_setzero_ps();
      }
    }
    for (int64_t i = 0; i + 1 < length; i += 2) {
      __m512 row[kVectors];
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        _mm_prefetch(reinterpret_cast<const char*>(fetch) + 64 * v, kHint);
        if constexpr (kFloat) {
          row[v] = _mm512_loadu_ps(weights + 64 * v);
        } else {
          const __m512i both = _mm512_loadu_si512(weights + 64 * v);
          row[v] = _mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xffff, both, 16));
        }
      }
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const __m512 x = _mm512_set1_ps(src[r / 3][r % 3 * stride]);
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) sums[0][r][v] = _mm512_fmadd_ps(x, row[v], sums[0][r][v]);
      }
      if constexpr (kFloat) weights += kStepBytes;
      PROCESSOR_LOAD_AFTER(weights);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        if constexpr (kFloat) {
          _mm_prefetch(reinterpret_cast<const char*>(fetch) + 64 * (kVectors + v), kHint);
          row[v] = _mm512_loadu_ps(weights + 64 * v);
        } else {
          const __m512i both = _mm512_loadu_si512(weights + 64 * v);
          row[v] = _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
        }
      }
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const __m512 x = _mm512_set1_ps(src[r / 3][r % 3 * stride + 1]);
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) sums[kSets - 1][r][v] = _mm512_fmadd_ps(x, row[v], sums[kSets - 1][r][v]);
      }
      weights += kStepBytes;
      fetch += s.fetch_step;
#pragma GCC unroll 16
      for (int p = 0; p < kPointers; ++p) {
        src[p] += 2;
        PROCESSOR_LOAD_AFTER(src[p]);
      }
    }
    if (length % 2 != 0) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        __m512 row;
        if constexpr (kFloat) {
          row = _mm512_loadu_ps(weights + 64 * v);
        } else {
          row = _mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xffff, _mm512_loadu_si512(weights + 64 * v), 16));
        }
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) {
          sums[0][r][v] = _mm512_fmadd_ps(_mm512_set1_ps(src[r / 3][r % 3 * stride]), row, sums[0][r][v]);
        }
      }
    }

    const float* bias = begin == 0 ? s.bias : nullptr;
    begin += kSumLength;
    const __m512 floor = _mm512_set1_ps(begin < s.k ? -std::numeric_limits<float>::infinity() : s.floor);
    const bool zero_nan = begin >= s.k && s.zero_nan;
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      float* const dst = s.dst + r * s.dst_stride;
      const float* const start = bias != nullptr ? bias : dst;
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        const __mmask16 mask = v + 1 == kVectors ? last : static_cast<__mmask16>(0xffff);
        __m512 sum = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, start + 16 * v), sums[0][r][v]);
        if constexpr (kSets == 2) sum = _mm512_add_ps(sum, sums[1][r][v]);
        // If one operand is NaN, the result is the second.
        const __m512 most = zero_nan ? _mm512_max_ps(sum, floor) : _mm512_max_ps(floor, sum);
        _mm512_mask_storeu_ps(dst + 16 * v, mask, most);
      }
    }
  } while (begin < s.k);
}

template <int kVectors, PanelType kType, int... kRow>
constexpr StripFunction Table(int64_t rows, std::integer_sequence<int, kRow...>) {
  constexpr StripFunction table[] = {Run<kRow + 1, kVectors, kType>...};
  return table[rows - 1];
}

template <PanelType kType>
StripFunction FindTyped(int64_t rows, int vectors) {
  using Wide = std::make_integer_sequence<int, kWideRows>;
  using Tall = std::make_integer_sequence<int, kTallRows>;
  switch (vectors) {
    case 4:
      return Table<4, kType>(rows, Wide());
    case 3:
      return Table<3, kType>(rows, Wide());
    case 2:
      return Table<2, kType>(rows, Tall());
    default:
      return Table<1, kType>(rows, Tall());
  }
}

struct Avx512 {
  static constexpr int kLanes = 16;
  static constexpr int kMaxRows = kTallRows;
  static int Vectors(int64_t rows, int64_t left) {
    return static_cast<int>(std::min<int64_t>(left, rows <= kWideRows ? 4 : 2));
  }
  static StripFunction Find(int64_t rows, int vectors, PanelType type) {
    return type == PanelType::kFloat32 ? FindTyped<PanelType::kFloat32>(rows, vectors)
                                       : FindTyped<PanelType::kBfloat16>(rows, vectors);
  }
};

}  // namespace

void MultiplyPanelsAvx512(const PanelMatmul& matmul) { MultiplyInStrips<Avx512>(matmul); }

}  // namespace processor
