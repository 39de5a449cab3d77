// SPDX-License-Identifier: Apache-2.0
// Remainders by a number that does not change, without a division.
#ifndef PROCESSOR_KERNELS_FAST_MOD_H_
#define PROCESSOR_KERNELS_FAST_MOD_H_

#include <cstdint>

namespace processor {

class FastMod {
 public:
  /// \param divisor  from 1 to 2^63.
  explicit FastMod(uint64_t divisor = 1) : divisor_(divisor), reciprocal_(UINT64_MAX / divisor) {}

  /// x mod divisor. The quotient comes out right or one too small, because the reciprocal is less than one too small.
  uint64_t Unsigned(uint64_t x) const {
    const auto quotient = static_cast<uint64_t>((static_cast<unsigned __int128>(x) * reciprocal_) >> 64);
    const uint64_t rest = x - quotient * divisor_;
    return rest >= divisor_ ? rest - divisor_ : rest;
  }

  /// x mod divisor, from 0 on also for x below 0.
  uint64_t Floor(int64_t x) const {
    return x >= 0 ? Unsigned(static_cast<uint64_t>(x)) : divisor_ - 1 - Unsigned(~static_cast<uint64_t>(x));
  }

  uint64_t divisor() const { return divisor_; }

 private:
  uint64_t divisor_;
  uint64_t reciprocal_;
};

}  // namespace processor

#endif  // PROCESSOR_KERNELS_FAST_MOD_H_
