// SPDX-License-Identifier: Apache-2.0
// Vectors of floats as wide as the instruction set for which a source is compiled, and rows as blocks of them. All is in an
// unnamed namespace, because several sources include it for different instruction sets.
#ifndef ELASTIC_TRAINING_OPTIMIZERS_FLOAT_VECTORS_H_
#define ELASTIC_TRAINING_OPTIMIZERS_FLOAT_VECTORS_H_

#include <cmath>
#include <cstddef>
#include <cstring>
#include <type_traits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define ELASTIC_INLINE inline __attribute__((always_inline))
// A lambda in a function of one instruction set.
#define ELASTIC_LAMBDA __attribute__((always_inline))

namespace elastic_training {
namespace {

#if defined(__AVX512F__)
constexpr size_t kWidest = 16;
#elif defined(__AVX2__)
constexpr size_t kWidest = 8;
#else
constexpr size_t kWidest = 4;
#endif

// A sum over a row adds element i to lane i mod 16, whatever the width.
constexpr size_t kLanes = 16;

template <size_t kWidth>
struct FloatVector {
  typedef float type __attribute__((vector_size(kWidth * sizeof(float))));
};
template <>
struct FloatVector<1> {
  typedef float type;
};

// The width of a block, as the type of an argument.
template <size_t kWidth>
struct Width {
  using Vector = typename FloatVector<kWidth>::type;
};

template <size_t kWidth>
ELASTIC_INLINE typename Width<kWidth>::Vector Load(Width<kWidth>, const float* src) {
  typename Width<kWidth>::Vector value;
  std::memcpy(&value, src, sizeof(value));
  return value;
}

template <typename Vector>
ELASTIC_INLINE void Store(float* dst, Vector value) {
  std::memcpy(dst, &value, sizeof(value));
}

template <size_t kWidth>
ELASTIC_INLINE typename Width<kWidth>::Vector Splat(Width<kWidth>, float value) {
  return value - typename Width<kWidth>::Vector{};
}

// Applies a function of a float to each element.
template <typename Vector, typename Function>
ELASTIC_INLINE Vector ForEach(Vector x, const Function& function) {
  float values[sizeof(Vector) / sizeof(float)];
  std::memcpy(values, &x, sizeof(x));
  for (float& value : values) value = function(value);
  std::memcpy(&x, values, sizeof(x));
  return x;
}

template <typename Vector>
ELASTIC_INLINE Vector SquareRoot(Vector x) {
#if defined(__AVX512F__)
  if constexpr (sizeof(Vector) == 64) return reinterpret_cast<Vector>(_mm512_sqrt_ps(reinterpret_cast<__m512>(x)));
#endif
#if defined(__AVX2__)
  if constexpr (sizeof(Vector) == 32) return reinterpret_cast<Vector>(_mm256_sqrt_ps(reinterpret_cast<__m256>(x)));
#endif
#if defined(__x86_64__)
  if constexpr (sizeof(Vector) == 16) return reinterpret_cast<Vector>(_mm_sqrt_ps(reinterpret_cast<__m128>(x)));
#endif
  return ForEach(x, [](float value) ELASTIC_LAMBDA { return std::sqrt(value); });
}

// Calls body(width, first element) for each block of n elements: the widest first, then 8, 4 and 1.
template <typename Body>
ELASTIC_INLINE void ForBlocks(size_t n, const Body& body) {
  const size_t whole = n - n % kWidest;
  for (size_t i = 0; i < whole; i += kWidest) body(Width<kWidest>(), i);
  if constexpr (kWidest > 8) {
    if (n % 16 >= 8) body(Width<8>(), whole);
  }
  if constexpr (kWidest > 4) {
    if (n % 8 >= 4) body(Width<4>(), n - n % 8);
  }
  for (size_t i = n - n % 4; i < n; ++i) body(Width<1>(), i);
}

// A sum over a row.
class LaneSum {
 public:
  template <size_t kWidth>
  ELASTIC_INLINE void Add(Width<kWidth> width, size_t at, typename Width<kWidth>::Vector values) {
    Store(lanes_ + at % kLanes, Load(width, lanes_ + at % kLanes) + values);
  }
  // Adds lanes 8, 4, 2 and 1 apart.
  ELASTIC_INLINE float Total() const {
    const Width<4> four;
    const auto sums =
        (Load(four, lanes_) + Load(four, lanes_ + 8)) + (Load(four, lanes_ + 4) + Load(four, lanes_ + 12));
    return (sums[0] + sums[2]) + (sums[1] + sums[3]);
  }

 private:
  alignas(64) float lanes_[kLanes] = {};
};

}  // namespace
}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_OPTIMIZERS_FLOAT_VECTORS_H_
