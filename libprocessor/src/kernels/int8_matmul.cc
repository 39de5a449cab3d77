// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/int8_matmul.h"

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#define PROCESSOR_TARGET_VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma")))

namespace processor {
namespace {

// The widest strips: 6 x 4 and 14 x 2 vectors of sums fill the 32 registers, with what they are made of.
constexpr int64_t kWideRows = 6;
constexpr int64_t kTallRows = 14;
constexpr int64_t kLanes = 16;
// The distance by which weights are prefetched: about the bytes that the memory delivers during its latency.
constexpr int64_t kFetchAheadBytes = 4096;

// Some rows times some columns of one panel; the sums stay in registers.
struct Strip {
  int64_t steps;
  const uint8_t* src;
  int64_t src_stride;
  const ByteScale* src_scales;
  const unsigned char* weights;  // the first column of the strip in the first step
  const unsigned char* fetch;    // what is prefetched meanwhile, and its step in bytes for one step of weights
  int64_t fetch_step;
  const float* scales;  // of the columns
  const int32_t* sums;
  const float* bias;
  float floor;
  bool zero_nan;
  float* dst;
  int64_t dst_stride;
  int last_columns;  // of the last vector, 1 to its width
};

using StripFunction = void (*)(const Strip&);

PROCESSOR_TARGET_VNNI inline __m512i Broadcast4(const uint8_t* src) {
  int32_t four;
  std::memcpy(&four, src, sizeof(four));
  return _mm512_set1_epi32(four);
}

template <int kRows, int kVectors>
PROCESSOR_TARGET_VNNI void Run(const Strip& s) {
  // A second set of sums for every other step hides the latency of sums where there are few.
  constexpr int kSets = kRows * kVectors < 8 ? 2 : 1;
  // Three rows share a pointer: the third is at twice the stride, which an address may say.
  constexpr int kPointers = (kRows + 2) / 3;
  const int64_t stride = s.src_stride;
  const uint8_t* src[kPointers];
#pragma GCC unroll 16
  for (int p = 0; p < kPointers; ++p) src[p] = s.src + 3 * p * stride;
  const unsigned char *weights = s.weights, *fetch = s.fetch;
  // Narrow strips fetch for later panels, which need not come into the first-level cache yet.
  constexpr auto kHint = kVectors > 2 ? _MM_HINT_T0 : _MM_HINT_T1;
  __m512i sums[kSets][kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      sums[0][r][v] = _mm512_setzero_si512();
      if constexpr (kSets == 2) sums[1][r][v] = _mm512_setzero_si512();
    }
  }
  for (int64_t i = 0; i < s.steps; i += kSets) {
#pragma GCC unroll 2
    for (int set = 0; set < kSets; ++set) {
      if (set > 0 && i + set == s.steps) break;
      __m512i row[kVectors];
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        _mm_prefetch(reinterpret_cast<const char*>(fetch) + 64 * v, kHint);
        row[v] = _mm512_loadu_si512(weights + 64 * v);
      }
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const __m512i x = Broadcast4(src[r / 3] + r % 3 * stride);
#pragma GCC unroll 16
        // The intrinsic makes GCC 12 copy all sums in every step.
        for (int v = 0; v < kVectors; ++v) asm("vpdpbusd %2, %1, %0" : "+v"(sums[set][r][v]) : "v"(x), "v"(row[v]));
      }
      weights += kStepBytes;
      fetch += s.fetch_step;
#pragma GCC unroll 16
      for (int p = 0; p < kPointers; ++p) src[p] += 4;
    }
  }

  const __mmask16 last = static_cast<__mmask16>(0xffffu >> (16 - s.last_columns));
  const __m512 floor = _mm512_set1_ps(s.floor);
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    float* const dst = s.dst + r * s.dst_stride;
    const float* const start = s.bias != nullptr ? s.bias : dst;
    const __m512i zero = _mm512_set1_epi32(s.src_scales[r].zero);
    const __m512 scale = _mm512_set1_ps(s.src_scales[r].scale);
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      const __mmask16 mask = v + 1 == kVectors ? last : static_cast<__mmask16>(0xffff);
      __m512i whole = sums[0][r][v];
      if constexpr (kSets == 2) whole = _mm512_add_epi32(whole, sums[1][r][v]);
      whole = _mm512_sub_epi32(whole, _mm512_mullo_epi32(zero, _mm512_loadu_si512(s.sums + 16 * v)));
      const __m512 factor = _mm512_mul_ps(scale, _mm512_loadu_ps(s.scales + 16 * v));
      const __m512 sum =
          _mm512_fmadd_ps(_mm512_cvtepi32_ps(whole), factor, _mm512_maskz_loadu_ps(mask, start + 16 * v));
      // If one operand is NaN, the result is the second.
      const __m512 most = s.zero_nan ? _mm512_max_ps(sum, floor) : _mm512_max_ps(floor, sum);
      _mm512_mask_storeu_ps(dst + 16 * v, mask, most);
    }
  }
}

template <int kVectors, int... kRow>
constexpr StripFunction Table(int64_t rows, std::integer_sequence<int, kRow...>) {
  constexpr StripFunction table[] = {Run<kRow + 1, kVectors>...};
  return table[rows - 1];
}

StripFunction Find(int64_t rows, int vectors) {
  using Wide = std::make_integer_sequence<int, kWideRows>;
  using Tall = std::make_integer_sequence<int, kTallRows>;
  switch (vectors) {
    case 4:
      return Table<4>(rows, Wide());
    case 3:
      return Table<3>(rows, Wide());
    case 2:
      return Table<2>(rows, Tall());
    default:
      return Table<1>(rows, Tall());
  }
}

PROCESSOR_TARGET_VNNI void RoundRow(const float* src, int64_t n, uint8_t* dst, ByteScale* row_scale) {
  const int64_t whole = n / kLanes * kLanes;
  const __mmask16 rest = static_cast<__mmask16>((1u << (n - whole)) - 1);
  __m512 least = _mm512_setzero_ps(), greatest = least, nothing = least;
  const auto look = [&](__m512 x) __attribute__((always_inline)) PROCESSOR_TARGET_VNNI {
    least = _mm512_min_ps(least, x);
    greatest = _mm512_max_ps(greatest, x);
    nothing = _mm512_fmadd_ps(x, _mm512_setzero_ps(), nothing);  // NaN times 0 is NaN, as is infinity times 0
  };
  for (int64_t i = 0; i < whole; i += kLanes) look(_mm512_loadu_ps(src + i));
  look(_mm512_maskz_loadu_ps(rest, src + whole));

  if (_mm512_cmp_ps_mask(nothing, nothing, _CMP_UNORD_Q) != 0) {
    *row_scale = {std::numeric_limits<float>::quiet_NaN(), 0};
    std::memset(dst, 0, static_cast<size_t>((n + kLanes - 1) / kLanes * kLanes));
    return;
  }
  // Each limit is divided, because the difference of both may overflow. Numbers with smaller steps count as 0, because
  // the inverse could overflow.
  const float low = _mm512_reduce_min_ps(least), step = _mm512_reduce_max_ps(greatest) / 255 - low / 255;
  const float inverse = step > 1e-36f ? 1 / step : 0;
  *row_scale = {step, static_cast<int32_t>(std::lrint(-low * inverse))};
  const __m512 factor = _mm512_set1_ps(inverse), shift = _mm512_set1_ps(static_cast<float>(row_scale->zero));
  const auto put = [&](__m512 x, int64_t i) __attribute__((always_inline)) PROCESSOR_TARGET_VNNI {
    const __m512i number = _mm512_cvtps_epi32(_mm512_fmadd_ps(x, factor, shift));
    const __m128i bytes = _mm512_cvtusepi32_epi8(_mm512_max_epi32(number, _mm512_setzero_si512()));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(dst + i), bytes);
  };
  for (int64_t i = 0; i < whole; i += kLanes) put(_mm512_loadu_ps(src + i), i);
  if (rest != 0) put(_mm512_maskz_loadu_ps(rest, src + whole), whole);
}

}  // namespace

void RoundToBytes(int64_t rows, int64_t n, SrcRows src, const ByteRows& dst) {
  for (int64_t r = 0; r < rows; ++r) RoundRow(src.data + r * src.stride, n, dst.data + r * dst.stride, dst.scales + r);
}

// A panel that is read only once is prefetched shortly before its use. While a panel is read several times, the next one
// is prefetched at an even pace, because otherwise its first reading would wait for memory.
void MultiplyInt8(const Int8Matmul& m) {
  const int64_t blocks = (m.rows + kTallRows - 1) / kTallRows;
  if (blocks == 0) return;
  const int64_t most_rows = (m.rows + blocks - 1) / blocks, widest = most_rows <= kWideRows ? 4 : 2;
  const int64_t panel_bytes = m.shape.panel_bytes();
  for (int64_t column = 0; column < m.shape.n; column += kPanelColumns) {
    const auto* panel = static_cast<const unsigned char*>(m.panels) + column / kPanelColumns * panel_bytes;
    const auto* columns = reinterpret_cast<const Int8Columns*>(panel + m.shape.steps() * kStepBytes);
    const int64_t width = std::min(kPanelColumns, m.shape.n - column), vectors = (width + kLanes - 1) / kLanes;
    const int64_t readings = blocks * ((vectors + widest - 1) / widest);
    const int64_t pace = readings >= 4 ? 4 : readings >= 2 ? 2 : 1;
    int64_t fetched = 0;
    for (int64_t vector = 0; vector < vectors; vector += widest) {
      const int64_t count = std::min(widest, vectors - vector), lane = vector * kLanes;
      Strip strip;
      strip.steps = m.shape.steps();
      strip.src_stride = m.src.stride;
      strip.weights = panel + lane * 4;
      strip.fetch_step = kStepBytes / pace;
      strip.scales = columns->scales + lane;
      strip.sums = columns->sums + lane;
      strip.bias = m.bias == nullptr ? nullptr : m.bias + column + lane;
      strip.floor = m.floor;
      strip.zero_nan = m.zero_nan;
      strip.dst_stride = m.dst_stride;
      strip.last_columns = static_cast<int>(std::min(kLanes, width - lane - (count - 1) * kLanes));
      for (int64_t block = 0; block < blocks; ++block) {
        // The sizes of blocks differ by one row at most: a last block of one row would cost almost as much as a full one.
        const int64_t row = m.rows * block / blocks, rows = m.rows * (block + 1) / blocks - row;
        strip.src = m.src.data + row * m.src.stride;
        strip.src_scales = m.src.scales + row;
        strip.dst = m.dst + row * m.dst_stride + column + lane;
        strip.fetch = pace == 1 ? strip.weights + kFetchAheadBytes : panel + panel_bytes + fetched;
        Find(rows, static_cast<int>(count))(strip);
        // Beyond the end, lines that are in the cache already are prefetched again.
        fetched += strip.steps * strip.fetch_step;
        if (fetched >= panel_bytes) fetched = 0;
      }
    }
  }
}

}  // namespace processor
