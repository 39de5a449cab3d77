// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "src/kernels/panel_matmul_strips.h"

namespace processor {
namespace {

PROCESSOR_TARGET_AVX2 inline __m256i FirstLanes(int count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

// Keeps loads that follow behind what comes before: all registers are taken.
#define PROCESSOR_LOAD_AFTER(pointer) asm volatile("" : "+r"(pointer))

// Strips of 1 x 8, 3 x 4 and 6 x 2 vectors of sums fill the 16 registers, with what they are made of.
template <int kRows, int kVectors, PanelType kType>
PROCESSOR_TARGET_AVX2 void Run(const Strip& s) {
  constexpr bool kFloat = kType == PanelType::kFloat32;
  const __m256i last = FirstLanes(s.last_columns);
  const float* src = s.src;
  const int64_t stride = s.src_stride;
  const unsigned char *weights = s.weights, *fetch = s.fetch;
  // Narrow strips fetch for later panels, which need not come into the first-level cache yet.
  constexpr auto kHint = kVectors > 2 ? _MM_HINT_T0 : _MM_HINT_T1;
  // An empty sum is a turn too. `kSumLength` is even, so that only the last part may be odd.
  int64_t begin = 0;
  do {
    const int64_t length = std::min(kSumLength, s.k - begin);
    __m256 sums[kRows][kVectors];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) sums[r][v] = _mm256_setzero_ps();
    }
    for (int64_t i = 0; i < length; i += 2) {
      __m256 row[kVectors];
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        // A vector is half a line; two rows of floats are twice as many lines as two of bfloat16.
        if (kFloat || v % 2 == 0) _mm_prefetch(reinterpret_cast<const char*>(fetch) + (kFloat ? 64 : 32) * v, kHint);
        if constexpr (kFloat) {
          row[v] = _mm256_loadu_ps(reinterpret_cast<const float*>(weights + 32 * v));
        } else {
          const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights + 32 * v));
          row[v] = _mm256_castsi256_ps(_mm256_slli_epi32(both, 16));
        }
      }
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const __m256 x = _mm256_broadcast_ss(src + r * stride);
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) sums[r][v] = _mm256_fmadd_ps(x, row[v], sums[r][v]);
      }
      if (i + 1 == length) break;
      if constexpr (kFloat) weights += kStepBytes;
      PROCESSOR_LOAD_AFTER(weights);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        if constexpr (kFloat) {
          row[v] = _mm256_loadu_ps(reinterpret_cast<const float*>(weights + 32 * v));
        } else {
          const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights + 32 * v));
          row[v] = _mm256_castsi256_ps(_mm256_and_si256(both, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
        }
      }
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const __m256 x = _mm256_broadcast_ss(src + r * stride + 1);
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) sums[r][v] = _mm256_fmadd_ps(x, row[v], sums[r][v]);
      }
      src += 2;
      weights += kStepBytes;
      fetch += s.fetch_step;
    }

    const float* bias = begin == 0 ? s.bias : nullptr;
    begin += kSumLength;
    const __m256 floor = _mm256_set1_ps(begin < s.k ? -std::numeric_limits<float>::infinity() : s.floor);
    const bool zero_nan = begin >= s.k && s.zero_nan;
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      float* const dst = s.dst + r * s.dst_stride;
      const float* const start = bias != nullptr ? bias : dst;
      // If one operand is NaN, the result is the second.
#pragma GCC unroll 16
      for (int v = 0; v + 1 < kVectors; ++v) {
        const __m256 sum = _mm256_add_ps(_mm256_loadu_ps(start + 8 * v), sums[r][v]);
        _mm256_storeu_ps(dst + 8 * v, zero_nan ? _mm256_max_ps(sum, floor) : _mm256_max_ps(floor, sum));
      }
      constexpr int v = kVectors - 1;
      const __m256 sum = _mm256_add_ps(_mm256_maskload_ps(start + 8 * v, last), sums[r][v]);
      _mm256_maskstore_ps(dst + 8 * v, last, zero_nan ? _mm256_max_ps(sum, floor) : _mm256_max_ps(floor, sum));
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
