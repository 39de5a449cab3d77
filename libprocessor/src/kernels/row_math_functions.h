// SPDX-License-Identifier: Apache-2.0
// The functions of RowMath, in plain loops that the compiler vectorizes. The header is included once for each instruction
// set, with PROCESSOR_ROW_MATH defined as the attribute of its functions, so all of them are in an unnamed namespace.

#include <cmath>
#include <cstdint>
#include <cstring>

#include "src/kernels/row_math.h"

namespace processor {
namespace {

#define PROCESSOR_ROW_MATH_INLINE PROCESSOR_ROW_MATH inline __attribute__((always_inline))

// A sum over a row has this many parts, because the compiler may not split it by itself.
constexpr int64_t kParts = 16;

PROCESSOR_ROW_MATH_INLINE float FromBits(int32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

PROCESSOR_ROW_MATH_INLINE int32_t ToBits(float value) {
  int32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// Returns exp(x) for x <= 0, with a relative error below 1.2e-7. Results below the normal numbers are 0, so that infinity
// times such a result is NaN, as in TensorFlow.
// x = n · ln 2 + r, and exp(r) by its series up to r^6 for |r| <= ln 2 / 2.
PROCESSOR_ROW_MATH_INLINE float ExpOfNegative(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 · 2^23: adding it rounds to an integer, in the low bits
  const bool vanishes = x < -87.33654f;
  x = vanishes ? -87.33654f : x;
  const float shifted = x * 1.44269504f + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float series = 1.3888889e-3f;
  series = series * r + 8.3333333e-3f;
  series = series * r + 4.1666667e-2f;
  series = series * r + 1.6666667e-1f;
  series = series * r + 0.5f;
  series = series * r + 1.0f;
  series = series * r + 1.0f;
  const float power =
      series * FromBits(static_cast<int32_t>(static_cast<uint32_t>(ToBits(shifted)) << 23) + 0x3f800000);
  return vanishes ? 0.0f : power;
}

PROCESSOR_ROW_MATH_INLINE float Sigmoid(float x) {
  const float small = ExpOfNegative(-std::fabs(x));
  const float upper = 1.0f / (1.0f + small);
  return x < 0.0f ? small * upper : upper;
}

PROCESSOR_ROW_MATH_INLINE float Tanh(float x) {
  const float small = ExpOfNegative(-2.0f * std::fabs(x));
  return std::copysign((1.0f - small) / (1.0f + small), x);
}

// Abramowitz and Stegun, formula 7.1.26, whose absolute error is below 1.5e-7.
PROCESSOR_ROW_MATH_INLINE float Erf(float x) {
  const float a = std::fabs(x);
  const float t = 1.0f / (1.0f + 0.3275911f * a);
  float series = 1.061405429f;
  series = series * t - 1.453152027f;
  series = series * t + 1.421413741f;
  series = series * t - 0.284496736f;
  series = series * t + 0.254829592f;
  return std::copysign(1.0f - series * t * ExpOfNegative(-a * a), x);
}

// log(1 + e) for 0 <= e <= 1 as 2 atanh(e / (2 + e)), whose series ends at 1/15 · 3^-15.
PROCESSOR_ROW_MATH_INLINE float Log1p(float e) {
  const float s = e / (2.0f + e), square = s * s;
  float series = 1.0f / 13;
  series = series * square + 1.0f / 11;
  series = series * square + 1.0f / 9;
  series = series * square + 1.0f / 7;
  series = series * square + 1.0f / 5;
  series = series * square + 1.0f / 3;
  series = series * square + 1.0f;
  return 2.0f * s * series;
}

// Comparisons are written so that a NaN stays a NaN; with `kZeroNan` (relu and relu6) it becomes 0.
template <ActivationKind kKind, bool kZeroNan>
PROCESSOR_ROW_MATH_INLINE float Apply(float x, float alpha) {
  const float negative = x > 0.0f ? 0.0f : x;
  switch (kKind) {
    case ActivationKind::kRelu:
      return kZeroNan ? (x > 0.0f ? x : 0.0f) : (x < 0.0f ? 0.0f : x);
    case ActivationKind::kRelu6:
      x = kZeroNan ? (x > 0.0f ? x : 0.0f) : (x < 0.0f ? 0.0f : x);
      return x > 6.0f ? 6.0f : x;
    case ActivationKind::kLeakyRelu:
      return x < 0.0f ? alpha * x : x;
    case ActivationKind::kElu:
      return x < 0.0f ? ExpOfNegative(negative) - 1.0f : x;
    case ActivationKind::kSelu: {
      const float scale = static_cast<float>(kSeluScale), below = static_cast<float>(kSeluScale * kSeluAlpha);
      return x < 0.0f ? below * (ExpOfNegative(negative) - 1.0f) : scale * x;
    }
    case ActivationKind::kSigmoid:
      return Sigmoid(x);
    case ActivationKind::kTanh:
      return Tanh(x);
    case ActivationKind::kGelu:
      return 0.5f * x * (1.0f + Erf(x * 0.70710678f));
    case ActivationKind::kGeluTanh:
      return x * Sigmoid(1.59576912f * (x + 0.044715f * x * x * x));
    case ActivationKind::kSwish:
      return x * Sigmoid(x);
    case ActivationKind::kSoftplus:
      return (x < 0.0f ? 0.0f : x) + Log1p(ExpOfNegative(-std::fabs(x)));
    default:
      return x;
  }
}

template <ActivationKind kKind, bool kZeroNan = false>
PROCESSOR_ROW_MATH void ApplyAll(float alpha, int64_t rows, int64_t n, DstRows x) {
  for (int64_t r = 0; r < rows; ++r) {
    float* row = x.data + r * x.stride;
    for (int64_t j = 0; j < n; ++j) row[j] = Apply<kKind, kZeroNan>(row[j], alpha);
  }
}

PROCESSOR_ROW_MATH void Prelu(int64_t rows, int64_t n, const float* alpha, DstRows x) {
  for (int64_t r = 0; r < rows; ++r) {
    float* row = x.data + r * x.stride;
    for (int64_t j = 0; j < n; ++j) row[j] = row[j] < 0.0f ? alpha[j] * row[j] : row[j];
  }
}

PROCESSOR_ROW_MATH void Dice(const RowActivation& dice, int64_t rows, int64_t n, DstRows x) {
  const float *alpha = dice.weight, *scale = dice.scale, *shift = dice.shift;
  for (int64_t r = 0; r < rows; ++r) {
    float* row = x.data + r * x.stride;
    for (int64_t j = 0; j < n; ++j) {
      const float p = Sigmoid(row[j] * scale[j] + shift[j]);
      // Products are added as in TensorFlow, so that infinity times 0 is NaN.
      row[j] = p * row[j] + alpha[j] * (1.0f - p) * row[j];
    }
  }
}

// Adds halves, because the compiler keeps the order of additions, and sixteen in a row would wait for each other.
PROCESSOR_ROW_MATH_INLINE float Sum(float* parts) {
  for (int64_t i = 0; i < 8; ++i) parts[i] += parts[i + 8];
  for (int64_t i = 0; i < 4; ++i) parts[i] += parts[i + 4];
  return (parts[0] + parts[2]) + (parts[1] + parts[3]);
}

PROCESSOR_ROW_MATH void Softmax(int64_t rows, int64_t n, DstRows x) {
  for (int64_t r = 0; r < rows; ++r) {
    float* row = x.data + r * x.stride;
    float parts[kParts], greatest = row[0];
    for (int64_t i = 0; i < kParts; ++i) parts[i] = row[0];
    int64_t j = 0;
    for (; j + kParts <= n; j += kParts) {
      for (int64_t i = 0; i < kParts; ++i) parts[i] = row[j + i] > parts[i] ? row[j + i] : parts[i];
    }
    for (; j < n; ++j) parts[0] = row[j] > parts[0] ? row[j] : parts[0];
    for (int64_t i = 0; i < kParts; ++i) greatest = parts[i] > greatest ? parts[i] : greatest;

    for (j = 0; j < n; ++j) row[j] = ExpOfNegative(row[j] - greatest);
    for (int64_t i = 0; i < kParts; ++i) parts[i] = 0;
    for (j = 0; j + kParts <= n; j += kParts) {
      for (int64_t i = 0; i < kParts; ++i) parts[i] += row[j + i];
    }
    for (; j < n; ++j) parts[0] += row[j];
    const float inverse = 1.0f / Sum(parts);
    for (j = 0; j < n; ++j) row[j] *= inverse;
  }
}

// Each column has its own lane, so nothing is added or compared across a vector.
PROCESSOR_ROW_MATH void SoftmaxOfColumns(int64_t rows, int64_t n, DstRows x) {
  for (int64_t column = 0; column < n; column += kParts) {
    float* const first = x.data + column;
    float greatest[kParts], sums[kParts];
    for (int64_t i = 0; i < kParts; ++i) greatest[i] = first[i];
    for (int64_t r = 1; r < rows; ++r) {
      const float* row = first + r * x.stride;
      for (int64_t i = 0; i < kParts; ++i) greatest[i] = row[i] > greatest[i] ? row[i] : greatest[i];
    }
    for (int64_t i = 0; i < kParts; ++i) sums[i] = 0;
    for (int64_t r = 0; r < rows; ++r) {
      float* row = first + r * x.stride;
      for (int64_t i = 0; i < kParts; ++i) {
        row[i] = ExpOfNegative(row[i] - greatest[i]);
        sums[i] += row[i];
      }
    }
    for (int64_t i = 0; i < kParts; ++i) sums[i] = 1.0f / sums[i];
    for (int64_t r = 0; r < rows; ++r) {
      float* row = first + r * x.stride;
      for (int64_t i = 0; i < kParts; ++i) row[i] *= sums[i];
    }
  }
}

PROCESSOR_ROW_MATH void Activate(const RowActivation& activation, int64_t rows, int64_t n, DstRows x) {
  const float alpha = activation.alpha;
  using Kind = ActivationKind;
  switch (activation.kind) {
    case Kind::kNone:
      return;
    case Kind::kRelu:
      return activation.zero_nan ? ApplyAll<Kind::kRelu, true>(alpha, rows, n, x)
                                 : ApplyAll<Kind::kRelu>(alpha, rows, n, x);
    case Kind::kRelu6:
      return activation.zero_nan ? ApplyAll<Kind::kRelu6, true>(alpha, rows, n, x)
                                 : ApplyAll<Kind::kRelu6>(alpha, rows, n, x);
    case Kind::kLeakyRelu:
      return ApplyAll<Kind::kLeakyRelu>(alpha, rows, n, x);
    case Kind::kElu:
      return ApplyAll<Kind::kElu>(alpha, rows, n, x);
    case Kind::kSelu:
      return ApplyAll<Kind::kSelu>(alpha, rows, n, x);
    case Kind::kSigmoid:
      return ApplyAll<Kind::kSigmoid>(alpha, rows, n, x);
    case Kind::kTanh:
      return ApplyAll<Kind::kTanh>(alpha, rows, n, x);
    case Kind::kGelu:
      return ApplyAll<Kind::kGelu>(alpha, rows, n, x);
    case Kind::kGeluTanh:
      return ApplyAll<Kind::kGeluTanh>(alpha, rows, n, x);
    case Kind::kSwish:
      return ApplyAll<Kind::kSwish>(alpha, rows, n, x);
    case Kind::kSoftplus:
      return ApplyAll<Kind::kSoftplus>(alpha, rows, n, x);
    case Kind::kSoftmax:
      return n > 0 ? Softmax(rows, n, x) : void();
    case Kind::kPrelu:
      return Prelu(rows, n, activation.weight, x);
    case Kind::kDice:
      return Dice(activation, rows, n, x);
  }
}

PROCESSOR_ROW_MATH void Affine(int64_t rows, int64_t n, SrcRows src, const float* scale, const float* shift,
                               DstRows dst) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* from = src.data + r * src.stride;
    float* to = dst.data + r * dst.stride;
    for (int64_t j = 0; j < n; ++j) to[j] = from[j] * scale[j] + shift[j];
  }
}

PROCESSOR_ROW_MATH void Add(int64_t rows, int64_t n, SrcRows src, DstRows dst) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* from = src.data + r * src.stride;
    float* to = dst.data + r * dst.stride;
    for (int64_t j = 0; j < n; ++j) to[j] += from[j];
  }
}

PROCESSOR_ROW_MATH void Multiply(int64_t rows, int64_t n, SrcRows src, DstRows dst) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* from = src.data + r * src.stride;
    float* to = dst.data + r * dst.stride;
    for (int64_t j = 0; j < n; ++j) to[j] *= from[j];
  }
}

PROCESSOR_ROW_MATH void MultiplyAdd(int64_t rows, int64_t n, SrcRows gate, SrcRows src, DstRows dst) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* from = src.data + r * src.stride;
    float* to = dst.data + r * dst.stride;
    const float factor = gate.data[r * gate.stride];
    for (int64_t j = 0; j < n; ++j) to[j] += factor * from[j];
  }
}

PROCESSOR_ROW_MATH void LayerNorm(int64_t rows, int64_t n, SrcRows src, const float* gamma, const float* beta,
                                  float epsilon, DstRows dst) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* from = src.data + r * src.stride;
    float* to = dst.data + r * dst.stride;
    float parts[kParts] = {};
    int64_t j = 0;
    for (; j + kParts <= n; j += kParts) {
      for (int64_t i = 0; i < kParts; ++i) parts[i] += from[j + i];
    }
    for (; j < n; ++j) parts[0] += from[j];
    const float mean = Sum(parts) / static_cast<float>(n);
    for (int64_t i = 0; i < kParts; ++i) parts[i] = 0;
    for (j = 0; j + kParts <= n; j += kParts) {
      for (int64_t i = 0; i < kParts; ++i) parts[i] += (from[j + i] - mean) * (from[j + i] - mean);
    }
    for (; j < n; ++j) parts[0] += (from[j] - mean) * (from[j] - mean);
    const float inverse = 1.0f / std::sqrt(Sum(parts) / static_cast<float>(n) + epsilon);
    for (j = 0; j < n; ++j) to[j] = (from[j] - mean) * inverse * gamma[j] + beta[j];
  }
}

PROCESSOR_ROW_MATH_INLINE uint32_t RoundedBits(float value) {
  const uint32_t bits = static_cast<uint32_t>(ToBits(value));
  const uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  return (value != value ? (bits | 0x400000u) : rounded) & 0xffff0000u;
}

PROCESSOR_ROW_MATH void Round(int64_t rows, int64_t n, SrcRows src, DstRows dst) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* from = src.data + r * src.stride;
    float* to = dst.data + r * dst.stride;
    for (int64_t j = 0; j < n; ++j) to[j] = FromBits(static_cast<int32_t>(RoundedBits(from[j])));
  }
}

PROCESSOR_ROW_MATH void ToBfloat16(int64_t rows, int64_t n, SrcRows src, uint16_t* dst, int64_t stride) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* from = src.data + r * src.stride;
    uint16_t* to = dst + r * stride;
    for (int64_t j = 0; j < n; ++j) to[j] = static_cast<uint16_t>(RoundedBits(from[j]) >> 16);
  }
}

constexpr RowMath kRowMath = {Activate,  Affine, Add,        Multiply,        MultiplyAdd,
                              LayerNorm, Round,  ToBfloat16, SoftmaxOfColumns};

}  // namespace
}  // namespace processor
