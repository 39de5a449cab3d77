// SPDX-License-Identifier: Apache-2.0
#include "src/live/row_encoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace processor {
namespace {

constexpr uint16_t kHalfInfinity = 0x7c00;

uint32_t BitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

float FromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// The next multiple of 2^shift, to nearest, halves to even.
uint32_t ShiftToNearest(uint32_t value, uint32_t shift) {
  return (value + (1u << (shift - 1)) - 1 + (value >> shift & 1)) >> shift;
}

uint16_t HalfOf(float value) {
  const uint32_t bits = BitsOf(value), sign = bits >> 16 & 0x8000u, rest = bits & 0x7fffffffu;
  if (rest > 0x7f800000u) {
    const uint32_t mantissa = rest >> 13 & 0x3ffu;
    return static_cast<uint16_t>(sign | kHalfInfinity | (mantissa == 0 ? 1 : mantissa));
  }
  if (rest >= 0x47800000u) return static_cast<uint16_t>(sign | kHalfInfinity);  // 2^16 and beyond
  if (rest >= 0x38800000u) return static_cast<uint16_t>(sign | ShiftToNearest(rest - 0x38000000u, 13));
  // Below the smallest normal half: a multiple of 2^-24.
  const uint32_t exponent = rest >> 23;
  if (exponent < 102) return static_cast<uint16_t>(sign);
  return static_cast<uint16_t>(sign | ShiftToNearest((rest & 0x7fffffu) | 0x800000u, 126 - exponent));
}

float FloatOfHalf(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16, rest = half & 0x7fffu;
  if (rest >= kHalfInfinity) return FromBits(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
  if (rest >= 0x0400u) return FromBits(sign | ((rest << 13) + 0x38000000u));
  const float value = static_cast<float>(rest) * 5.9604644775390625e-8f;
  return sign == 0 ? value : -value;
}

// Rounds to fp16 toward negative infinity (up: false) or positive infinity.
uint16_t HalfToward(float value, bool up) {
  const uint16_t half = HalfOf(value);
  const float wide = FloatOfHalf(half);
  if (up ? !(wide < value) : !(wide > value)) return half;
  if ((half & 0x7fffu) == 0) return up ? 0x0001 : 0x8001;
  // The magnitude grows if the number moves away from zero.
  return static_cast<uint16_t>(((half & 0x8000u) == 0) == up ? half + 1 : half - 1);
}

struct ScaleBias {
  uint16_t scale, bias;
};

ScaleBias Range(float low, float high, float largest) {
  ScaleBias found{};
  found.bias = HalfToward(low, false);
  found.scale = HalfToward((high - FloatOfHalf(found.bias)) / largest, true);
  if ((found.scale & 0x7fffu) == 0) found.scale = 0x3c00;
  return found;
}

// A row of which each element is a whole number from 0 to `largest`.
class Levels {
 public:
  Levels(ScaleBias chosen, float largest)
      : scale_(FloatOfHalf(chosen.scale)), bias_(FloatOfHalf(chosen.bias)), factor_(1 / scale_), largest_(largest) {}

  float Of(float value) const {
    constexpr float kWhole = 12582912.0f;  // numbers of this size have no fraction
    const float level = (value - bias_) * factor_;
    // NaN becomes 0. Limits are whole numbers, so that it does not matter which comes first.
    const float limited = std::min(std::max(0.0f, level), largest_);
    return (limited + kWhole) - kWhole;
  }

  float SquaredError(const float* row, size_t dim) const {
    float sum = 0;
    for (size_t i = 0; i < dim; ++i) {
      float difference = Of(row[i]) * scale_;
      difference += bias_;
      difference -= row[i];
      sum += difference * difference;
    }
    return sum;
  }

 private:
  const float scale_, bias_, factor_, largest_;
};

// Parts of the range that may be cut off below and above if a row has 4 bits.
constexpr float kCuts[2][2] = {{1.0f / 30, 0}, {0, 1.0f / 30}};

ScaleBias ChooseRange(const float* row, size_t dim, float largest) {
  const auto [least, greatest] = std::minmax_element(row, row + dim);
  const float low = *least, high = *greatest;
  ScaleBias chosen = Range(low, high, largest);
  if (largest > 15 || dim < 3) return chosen;
  float error = Levels(chosen, largest).SquaredError(row, dim);
  const float spread = high - low;
  for (const auto& [cut_low, cut_high] : kCuts) {
    const ScaleBias tried = Range(low + spread * cut_low, high - spread * cut_high, largest);
    const float tried_error = Levels(tried, largest).SquaredError(row, dim);
    if (!(tried_error < error)) continue;
    chosen = tried;
    error = tried_error;
  }
  return chosen;
}

bool EncodeCodes(RowType type, const float* row, size_t dim, uint8_t* dst) {
  for (size_t i = 0; i < dim; ++i) {
    if (!std::isfinite(row[i])) return false;
  }
  const float largest = type == RowType::kInt8 ? 255 : 15;
  const ScaleBias chosen = ChooseRange(row, dim, largest);
  if ((chosen.scale & 0x7fffu) >= kHalfInfinity || (chosen.bias & 0x7fffu) >= kHalfInfinity) return false;
  std::memcpy(dst, &chosen, sizeof(chosen));
  const Levels levels(chosen, largest);
  uint8_t* codes = dst + 4;
  if (type == RowType::kInt8) {
    for (size_t i = 0; i < dim; ++i) codes[i] = static_cast<uint8_t>(levels.Of(row[i]));
    return true;
  }
  for (size_t i = 0; i < dim; i += 2) {
    const auto low = static_cast<uint8_t>(levels.Of(row[i]));
    const auto high = i + 1 < dim ? static_cast<uint8_t>(levels.Of(row[i + 1])) : uint8_t{0};
    codes[i / 2] = static_cast<uint8_t>(low | high << 4);
  }
  return true;
}

}  // namespace

bool EncodeRow(RowType type, const float* row, size_t dim, uint8_t* dst) {
  switch (type) {
    case RowType::kFloat32:
      std::memcpy(dst, row, 4 * dim);
      return true;
    case RowType::kBfloat16:
      for (size_t i = 0; i < dim; ++i) {
        const uint32_t bits = BitsOf(row[i]);
        const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
        const auto half = static_cast<uint16_t>(is_nan ? (bits >> 16 & 0x8000u) | 0x7fc0u : ShiftToNearest(bits, 16));
        std::memcpy(dst + 2 * i, &half, sizeof(half));
      }
      return true;
    case RowType::kFloat16:
      for (size_t i = 0; i < dim; ++i) {
        const uint16_t half = HalfOf(row[i]);
        if ((half & 0x7fffu) == kHalfInfinity && !std::isinf(row[i])) return false;
        std::memcpy(dst + 2 * i, &half, sizeof(half));
      }
      return true;
    case RowType::kInt8:
    case RowType::kInt4:
      return EncodeCodes(type, row, dim, dst);
  }
  return false;
}

}  // namespace processor
