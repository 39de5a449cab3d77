// SPDX-License-Identifier: Apache-2.0
// Compiled for AVX-512 (F, BW, VL); called only where the CPU has it.
#include <immintrin.h>

#include "src/kernels/row_kernels_loops.h"

namespace processor {
namespace {

struct Avx512 {
  using Vector = __m512;
  using Tail = __mmask16;
  static constexpr size_t kWidth = 16;

  static Tail MakeTail(size_t elements) { return static_cast<Tail>((1u << elements) - 1); }
  static Vector Zero() { return _mm512_setzero_ps(); }
  static Vector Set(float value) { return _mm512_set1_ps(value); }
  static Vector Add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
  static Vector Multiply(Vector a, Vector b) { return _mm512_mul_ps(a, b); }
  static float Half(uint16_t bits) { return _cvtsh_ss(bits); }
  static Vector Read(const float* src) { return _mm512_loadu_ps(src); }
  static Vector ReadTail(const float* src, Tail tail) { return _mm512_maskz_loadu_ps(tail, src); }
  static void Write(float* dst, Vector value) { _mm512_storeu_ps(dst, value); }
  static void WriteTail(float* dst, Vector value, Tail tail) { _mm512_mask_storeu_ps(dst, tail, value); }

  static Vector Dequantize(__m512i q, Vector scale, Vector bias) {
    return _mm512_add_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(q), scale), bias);
  }

  template <int kType>
  static Vector Load(const uint8_t* row, size_t e, Vector scale, Vector bias) {
    return LoadTail<kType>(row, e, scale, bias, 0xffff);
  }

  // Bytes beyond the mask are not read: the row may be the last of the file.
  template <int kType>
  static Vector LoadTail(const uint8_t* row, size_t e, Vector scale, Vector bias, Tail tail) {
    if constexpr (kType == kFloat32) {
      return _mm512_maskz_loadu_ps(tail, row + 4 * e);
    } else if constexpr (kType == kBfloat16) {
      const __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(tail, row + 2 * e));
      return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
    } else if constexpr (kType == kFloat16) {
      return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(tail, row + 2 * e));
    } else if constexpr (kType == kInt8) {
      return Dequantize(_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(tail, row + 4 + e)), scale, bias);
    } else {
      // A byte has two elements: every second bit of the mask, and one more byte for an odd last element.
      const auto bytes = static_cast<__mmask16>((1u << ((__builtin_popcount(tail) + 1) / 2)) - 1);
      const __m128i pairs = _mm_cvtepu8_epi16(_mm_maskz_loadu_epi8(bytes, row + 4 + e / 2));
      const __m128i low_high = _mm_and_si128(_mm_or_si128(pairs, _mm_slli_epi16(pairs, 4)), _mm_set1_epi8(0xf));
      return Dequantize(_mm512_cvtepu8_epi32(low_high), scale, bias);
    }
  }
};

constexpr RowKernels kKernels = MakeRowKernels<Avx512>();

}  // namespace

extern const RowKernels* const kAvx512RowKernels;
const RowKernels* const kAvx512RowKernels = &kKernels;

}  // namespace processor
