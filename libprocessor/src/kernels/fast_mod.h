// SPDX-License-Identifier: Apache-2.0
// Computes remainders and quotients by a constant divisor without a division.
#ifndef PROCESSOR_KERNELS_FAST_MOD_H_
#define PROCESSOR_KERNELS_FAST_MOD_H_

#include <cstdint>

namespace processor {

/// A divisor and its reciprocal. Plain data.
class FastMod {
 public:
  /// \param divisor  from 1 to 2^63.
  explicit FastMod(uint64_t divisor = 1) : divisor_(divisor), reciprocal_(UINT64_MAX / divisor) {}

  /// Returns x mod divisor. The reciprocal is rounded down, so the quotient is exact or one too small.
  uint64_t Unsigned(uint64_t x) const {
    const uint64_t rest = x - Estimate(x) * divisor_;
    return rest >= divisor_ ? rest - divisor_ : rest;
  }

  /// Returns x / divisor.
  uint64_t Quotient(uint64_t x) const {
    const uint64_t quotient = Estimate(x);
    return quotient + (x - quotient * divisor_ >= divisor_ ? 1 : 0);
  }

  /// Returns x / divisor, rounded down also if x is negative.
  int64_t FloorQuotient(int64_t x) const {
    const auto bits = static_cast<uint64_t>(x);
    return static_cast<int64_t>(x >= 0 ? Quotient(bits) : ~Quotient(~bits));
  }

  /// Returns x mod divisor, which is not negative even if x is.
  uint64_t Floor(int64_t x) const {
    return x >= 0 ? Unsigned(static_cast<uint64_t>(x)) : divisor_ - 1 - Unsigned(~static_cast<uint64_t>(x));
  }

  uint64_t divisor() const { return divisor_; }

 private:
  uint64_t Estimate(uint64_t x) const {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(x) * reciprocal_) >> 64);
  }

  uint64_t divisor_;
  uint64_t reciprocal_;
};

}  // namespace processor

#endif  // PROCESSOR_KERNELS_FAST_MOD_H_
