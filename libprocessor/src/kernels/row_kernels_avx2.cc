// SPDX-License-Identifier: Apache-2.0
// Compiled for AVX2 and F16C; called only where the CPU has them.
#include <immintrin.h>

#include "src/kernels/row_kernels_loops.h"

namespace processor {
namespace {

struct Avx2 {
  using Vector = __m256;
  using Tail = size_t;  // elements, 1-8
  static constexpr size_t kWidth = 8;

  static Tail MakeTail(size_t elements) { return elements; }
  static Vector Zero() { return _mm256_setzero_ps(); }
  static Vector Set(float value) { return _mm256_set1_ps(value); }
  static Vector Add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
  static Vector Multiply(Vector a, Vector b) { return _mm256_mul_ps(a, b); }
  static float Half(uint16_t bits) { return _cvtsh_ss(bits); }
  static Vector Read(const float* src) { return _mm256_loadu_ps(src); }
  static void Write(float* dst, Vector value) { _mm256_storeu_ps(dst, value); }

  static __m256i Mask(Tail tail) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(tail)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static Vector ReadTail(const float* src, Tail tail) {
    return tail == kWidth ? Read(src) : _mm256_maskload_ps(src, Mask(tail));
  }
  static void WriteTail(float* dst, Vector value, Tail tail) {
    if (tail == kWidth) return Write(dst, value);
    _mm256_maskstore_ps(dst, Mask(tail), value);
  }

  static Vector Dequantize(__m128i bytes, Vector scale, Vector bias) {
    return _mm256_add_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)), scale), bias);
  }

  template <int kType>
  static Vector Load(const uint8_t* row, size_t e, Vector scale, Vector bias) {
    if constexpr (kType == kFloat32) {
      return _mm256_loadu_ps(reinterpret_cast<const float*>(row + 4 * e));
    } else if constexpr (kType == kBfloat16) {
      const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row + 2 * e)));
      return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
    } else if constexpr (kType == kFloat16) {
      return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row + 2 * e)));
    } else if constexpr (kType == kInt8) {
      return Dequantize(_mm_loadu_si64(row + 4 + e), scale, bias);
    } else {
      const __m128i pairs = _mm_cvtepu8_epi16(_mm_loadu_si32(row + 4 + e / 2));
      return Dequantize(_mm_and_si128(_mm_or_si128(pairs, _mm_slli_epi16(pairs, 4)), _mm_set1_epi8(0xf)), scale, bias);
    }
  }

  // Bytes beyond the tail are not read: the row may be the last of the file.
  template <int kType>
  static Vector LoadTail(const uint8_t* row, size_t e, Vector scale, Vector bias, Tail tail) {
    if (tail == kWidth) return Load<kType>(row, e, scale, bias);
    if constexpr (kType == kFloat32) return ReadTail(reinterpret_cast<const float*>(row + 4 * e), tail);
    constexpr bool kQuantized = kType == kInt8 || kType == kInt4;
    const size_t bytes = kType == kInt4 ? (tail + 1) / 2 : kType == kInt8 ? tail : 2 * tail;
    const size_t skipped = kType == kInt4 ? e / 2 : kType == kInt8 ? e : 2 * e;
    uint8_t copy[4 + 16] = {};
    std::memcpy(copy + (kQuantized ? 4 : 0), row + (kQuantized ? 4 : 0) + skipped, bytes);
    return Load<kType>(copy, 0, scale, bias);
  }
};

constexpr RowKernels kKernels = MakeRowKernels<Avx2>();

}  // namespace

extern const RowKernels* const kAvx2RowKernels;
const RowKernels* const kAvx2RowKernels = &kKernels;

}  // namespace processor
