// SPDX-License-Identifier: Apache-2.0
// Numbers that cases compute with, and the comparison of what their ways give.
#ifndef PROCESSOR_BENCH_KERNELS_FLOATS_H_
#define PROCESSOR_BENCH_KERNELS_FLOATS_H_

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace processor::bench {

using Floats = std::vector<float>;

/// Numbers between -scale and scale, the same for the same seed.
inline Floats Random(size_t count, float scale, unsigned seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(-scale, scale);
  Floats numbers(count);
  for (float& one : numbers) one = uniform(generator);
  return numbers;
}

/// The first two numbers that are further apart than rounding takes them, or "".
inline std::string Differences(const Floats& ours, const Floats& theirs) {
  for (size_t i = 0; i < ours.size(); ++i) {
    if (!(std::fabs(ours[i] - theirs[i]) <= 1e-4 + 1e-4 * std::fabs(theirs[i]))) {
      return absl::StrCat(ours[i], " for ", theirs[i], " at ", i);
    }
  }
  return "";
}

}  // namespace processor::bench

#endif  // PROCESSOR_BENCH_KERNELS_FLOATS_H_
