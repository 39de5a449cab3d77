// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "src/kernels/panel_matmul_strips.h"

namespace processor {
namespace {

// The widest strips: 6 x 4 and 14 x 2 vectors of sums fill the 32 registers, with what they are made of.
constexpr int kWideRows = 6;
constexpr int kTallRows = 14;

template <int kRows, int kVectors, PanelType kType>
PROCESSOR_TARGET_AVX512 void Run(const Strip& s) {
  // A second set of sums for every other row of weights hides the latency of additions where there are few.
  constexpr int kSets = kRows * kVectors < 8 ? 2 : 1;
  const __mmask16 last = static_cast<__mmask16>(0xffffu >> (16 - s.last_columns));
  __m512 sums[kSets][kRows][kVectors];
  // Sums of sums, in memory: the registers are needed.
  __m512 totals[kRows][kVectors];
  const bool long_sum = s.k > kSumLength;
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    const float* start = s.bias != nullptr ? s.bias : s.dst + r * s.dst_stride;
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      const __mmask16 mask = v + 1 == kVectors ? last : static_cast<__mmask16>(0xffff);
      sums[0][r][v] = _mm512_maskz_loadu_ps(mask, start + 16 * v);
      if constexpr (kSets == 2) sums[1][r][v] = _mm512_setzero_ps();
      if (long_sum) totals[r][v] = _mm512_setzero_ps();
    }
  }

  const float* src = s.src;
  const int64_t stride = s.src_stride;
  const unsigned char* weights = s.weights;
  // `kSumLength` is even, so that only the last part may be odd.
  for (int64_t begin = 0; begin < s.k; begin += kSumLength) {
    const int64_t end = std::min(begin + kSumLength, s.k);
    for (int64_t i = 0; i + 1 < end - begin; i += 2) {
      __m512 even[kVectors], odd[kVectors];
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        _mm_prefetch(reinterpret_cast<const char*>(weights) + 64 * v + kFetchAheadBytes, _MM_HINT_T0);
        if constexpr (kType == PanelType::kFloat32) {
          _mm_prefetch(reinterpret_cast<const char*>(weights) + 64 * v + kFetchAheadBytes + kStepBytes, _MM_HINT_T0);
          even[v] = _mm512_loadu_ps(weights + 64 * v);
          odd[v] = _mm512_loadu_ps(weights + 64 * v + kStepBytes);
        } else {
          const __m512i both = _mm512_loadu_si512(weights + 64 * v);
          even[v] = _mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xffff, both, 16));
          odd[v] = _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
        }
      }
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const __m512 x = _mm512_set1_ps(src[r * stride]);
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) sums[0][r][v] = _mm512_fmadd_ps(x, even[v], sums[0][r][v]);
      }
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const __m512 x = _mm512_set1_ps(src[r * stride + 1]);
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) sums[kSets - 1][r][v] = _mm512_fmadd_ps(x, odd[v], sums[kSets - 1][r][v]);
      }
      src += 2;
      weights += kType == PanelType::kFloat32 ? 2 * kStepBytes : kStepBytes;
    }
    if (end == s.k) break;
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        totals[r][v] = _mm512_add_ps(totals[r][v], sums[0][r][v]);
        sums[0][r][v] = _mm512_setzero_ps();
        if constexpr (kSets == 2) {
          totals[r][v] = _mm512_add_ps(totals[r][v], sums[1][r][v]);
          sums[1][r][v] = _mm512_setzero_ps();
        }
      }
    }
  }
  if (s.k % 2 != 0) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      __m512 row;
      if constexpr (kType == PanelType::kFloat32) {
        row = _mm512_loadu_ps(weights + 64 * v);
      } else {
        row = _mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xffff, _mm512_loadu_si512(weights + 64 * v), 16));
      }
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        sums[0][r][v] = _mm512_fmadd_ps(_mm512_set1_ps(src[r * stride]), row, sums[0][r][v]);
      }
    }
  }

  const __m512 floor = _mm512_set1_ps(s.floor);
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      const __mmask16 mask = v + 1 == kVectors ? last : static_cast<__mmask16>(0xffff);
      __m512 sum = sums[0][r][v];
      if constexpr (kSets == 2) sum = _mm512_add_ps(sum, sums[1][r][v]);
      if (long_sum) sum = _mm512_add_ps(sum, totals[r][v]);
      // Of two operands with a NaN the second is the answer.
      _mm512_mask_storeu_ps(s.dst + r * s.dst_stride + 16 * v, mask, _mm512_maskz_max_ps(mask, floor, sum));
    }
  }
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
