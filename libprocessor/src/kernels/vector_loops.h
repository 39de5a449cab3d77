// SPDX-License-Identifier: Apache-2.0
// Vectors of floats of any width, for kernels with a form for each instruction set.
//
// A kernel consists of inline functions and one function around them for each instruction set, for which the compiler
// compiles them. Loops that carry no sum from one element to the next are plain; the others use these vectors.
#ifndef PROCESSOR_KERNELS_VECTOR_LOOPS_H_
#define PROCESSOR_KERNELS_VECTOR_LOOPS_H_

#include <cstdint>
#include <cstring>

#define PROCESSOR_ALWAYS_INLINE inline __attribute__((always_inline))

namespace processor {

/// The floats of the widest vectors of the instruction sets.
constexpr int kLanesAvx512 = 16;
constexpr int kLanesAvx2 = 8;
constexpr int kLanesPlain = 4;
/// A number that the floats of all vectors divide.
constexpr int64_t kMostLanes = 16;

template <int kLanes>
struct VectorOf {
  typedef float Type __attribute__((vector_size(4 * kLanes)));
};
template <int kLanes>
using Vector = typename VectorOf<kLanes>::Type;

template <int kLanes>
PROCESSOR_ALWAYS_INLINE void Load(const float* src, Vector<kLanes>& dst) {
  std::memcpy(&dst, src, sizeof(dst));
}

template <int kLanes>
PROCESSOR_ALWAYS_INLINE void Store(const Vector<kLanes>& src, float* dst) {
  std::memcpy(dst, &src, sizeof(src));
}

/// Returns the sum of the lanes, adding quarters of the vector first.
template <int kLanes>
PROCESSOR_ALWAYS_INLINE float SumLanes(const Vector<kLanes>& src) {
  Vector<4> parts[kLanes / 4];
  std::memcpy(parts, &src, sizeof(src));
  for (int i = kLanes / 8; i > 0; i /= 2) {
    for (int j = 0; j < i; ++j) parts[j] += parts[j + i];
  }
  return (parts[0][0] + parts[0][2]) + (parts[0][1] + parts[0][3]);
}

/// Returns Σ a[i] · b[i].
template <int kLanes>
PROCESSOR_ALWAYS_INLINE float Dot(const float* a, const float* b, int64_t size) {
  Vector<kLanes> one = {}, two = {}, x, y;
  int64_t i = 0;
  for (; i + 2 * kLanes <= size; i += 2 * kLanes) {
    Load<kLanes>(a + i, x);
    Load<kLanes>(b + i, y);
    one += x * y;
    Load<kLanes>(a + i + kLanes, x);
    Load<kLanes>(b + i + kLanes, y);
    two += x * y;
  }
  if (i + kLanes <= size) {
    Load<kLanes>(a + i, x);
    Load<kLanes>(b + i, y);
    one += x * y;
    i += kLanes;
  }
  one += two;
  float sum = SumLanes<kLanes>(one);
  for (; i < size; ++i) sum += a[i] * b[i];
  return sum;
}

/// Whether all numbers are finite. It uses integers, because the compiler does not vectorize a sum of floats.
PROCESSOR_ALWAYS_INLINE bool AllFinite(const float* values, int64_t size) {
  uint32_t top = 0;
  for (int64_t i = 0; i < size; ++i) {
    uint32_t bits;
    std::memcpy(&bits, values + i, sizeof(bits));
    // An exponent of ones, which infinities and NaN have, carries into the sign.
    top |= (bits & 0x7fffffffu) + 0x00800000u;
  }
  return top >> 31 == 0;
}

}  // namespace processor

#endif  // PROCESSOR_KERNELS_VECTOR_LOOPS_H_
