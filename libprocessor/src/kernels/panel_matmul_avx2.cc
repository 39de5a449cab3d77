// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "src/kernels/panel_matmul_strips.h"

namespace processor {
namespace {

PROCESSOR_TARGET_AVX2 inline __m256i FirstLanes(int count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

// Strips of 1 x 8, 3 x 4 and 6 x 2 vectors of sums fill the 16 registers, with what they are made of.
template <int kRows, int kVectors, PanelType kType>
PROCESSOR_TARGET_AVX2 void Run(const Strip& s) {
  const __m256i last = FirstLanes(s.last_columns);
  __m256 sums[kRows][kVectors];
  // Sums of sums, in memory: the registers are needed.
  __m256 totals[kRows][kVectors];
  const bool long_sum = s.k > kSumLength;
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    const float* start = s.bias != nullptr ? s.bias : s.dst + r * s.dst_stride;
#pragma GCC unroll 16
    for (int v = 0; v + 1 < kVectors; ++v) sums[r][v] = _mm256_loadu_ps(start + 8 * v);
    sums[r][kVectors - 1] = _mm256_maskload_ps(start + 8 * (kVectors - 1), last);
    for (int v = 0; v < kVectors && long_sum; ++v) totals[r][v] = _mm256_setzero_ps();
  }

  const float* src = s.src;
  const int64_t stride = s.src_stride;
  const unsigned char* weights = s.weights;
  // Two rows a turn if they are bfloat16, which share a vector.
  constexpr int kTurn = kType == PanelType::kFloat32 ? 1 : 2;
  // `kSumLength` is even, so that only the last part may be odd.
  for (int64_t begin = 0; begin < s.k; begin += kSumLength) {
    const int64_t end = std::min(begin + kSumLength, s.k);
    for (int64_t i = begin; i < end; i += kTurn) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; v += 2) {
        _mm_prefetch(reinterpret_cast<const char*>(weights) + 32 * v + kFetchAheadBytes, _MM_HINT_T0);
      }
      if constexpr (kType == PanelType::kFloat32) {
        __m256 row[kVectors];
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) row[v] = _mm256_loadu_ps(reinterpret_cast<const float*>(weights + 32 * v));
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) {
          const __m256 x = _mm256_broadcast_ss(src + r * stride);
#pragma GCC unroll 16
          for (int v = 0; v < kVectors; ++v) sums[r][v] = _mm256_fmadd_ps(x, row[v], sums[r][v]);
        }
      } else {
        // One row, then the other: the registers do not hold both.
        const __m256i high = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
        __m256 row[kVectors];
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) {
          const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights + 32 * v));
          row[v] = _mm256_castsi256_ps(_mm256_slli_epi32(both, 16));
        }
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) {
          const __m256 x = _mm256_broadcast_ss(src + r * stride);
#pragma GCC unroll 16
          for (int v = 0; v < kVectors; ++v) sums[r][v] = _mm256_fmadd_ps(x, row[v], sums[r][v]);
        }
        if (i + 1 == s.k) break;
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) {
          const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights + 32 * v));
          row[v] = _mm256_castsi256_ps(_mm256_and_si256(both, high));
        }
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) {
          const __m256 x = _mm256_broadcast_ss(src + r * stride + 1);
#pragma GCC unroll 16
          for (int v = 0; v < kVectors; ++v) sums[r][v] = _mm256_fmadd_ps(x, row[v], sums[r][v]);
        }
      }
      src += kTurn;
      weights += kStepBytes;
    }
    if (end == s.k) break;
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        totals[r][v] = _mm256_add_ps(totals[r][v], sums[r][v]);
        sums[r][v] = _mm256_setzero_ps();
      }
    }
  }

  const __m256 floor = _mm256_set1_ps(s.floor);
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    float* out = s.dst + r * s.dst_stride;
    for (int v = 0; v < kVectors && long_sum; ++v) sums[r][v] = _mm256_add_ps(sums[r][v], totals[r][v]);
    // Of two operands with a NaN the second is the answer.
#pragma GCC unroll 16
    for (int v = 0; v + 1 < kVectors; ++v) _mm256_storeu_ps(out + 8 * v, _mm256_max_ps(floor, sums[r][v]));
    _mm256_maskstore_ps(out + 8 * (kVectors - 1), last, _mm256_max_ps(floor, sums[r][kVectors - 1]));
  }
}

template <int kVectors, PanelType kType, int... kRow>
constexpr StripFunction Table(int64_t rows, std::integer_sequence<int, kRow...>) {
  constexpr StripFunction table[] = {Run<kRow + 1, kVectors, kType>...};
  return table[rows - 1];
}

template <PanelType kType>
StripFunction FindTyped(int64_t rows, int vectors) {
  using std::make_integer_sequence;
  switch (vectors) {
    case 8:
      return Run<1, 8, kType>;
    case 4:
      return Table<4, kType>(rows, make_integer_sequence<int, 3>());
    case 2:
      return Table<2, kType>(rows, make_integer_sequence<int, 6>());
    default:
      return Table<1, kType>(rows, make_integer_sequence<int, 6>());
  }
}

struct Avx2 {
  static constexpr int kLanes = 8;
  static constexpr int kMaxRows = 6;
  static int Vectors(int64_t rows, int64_t left) {
    if (rows == 1 && left >= 8) return 8;
    if (rows <= 3 && left >= 4) return 4;
    return left >= 2 ? 2 : 1;
  }
  static StripFunction Find(int64_t rows, int vectors, PanelType type) {
    return type == PanelType::kFloat32 ? FindTyped<PanelType::kFloat32>(rows, vectors)
                                       : FindTyped<PanelType::kBfloat16>(rows, vectors);
  }
};

}  // namespace

void MultiplyPanelsAvx2(const PanelMatmul& matmul) { MultiplyInStrips<Avx2>(matmul); }

}  // namespace processor
