// SPDX-License-Identifier: Apache-2.0
// Numbers that cases compute with, and cases whose two ways must give the same ones.
#ifndef PROCESSOR_BENCH_KERNELS_FLOATS_H_
#define PROCESSOR_BENCH_KERNELS_FLOATS_H_

#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/kernel_case.h"

namespace processor::bench {

using Floats = std::vector<float>;

/// Numbers between -scale and scale, the same for the same seed.
inline Floats Random(size_t count, float scale, unsigned seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(-scale, scale);
  Floats numbers(count);
  for (float& number : numbers) number = uniform(generator);
  return numbers;
}

/// What the two ways of a case compute.
struct TwoAnswers {
  Floats ours, theirs;
};

/// The first two numbers that are further apart than rounding takes them, or "".
inline std::string Differences(const TwoAnswers& answers, double tolerance) {
  for (size_t i = 0; i < answers.ours.size(); ++i) {
    const double found = answers.ours[i], expected = answers.theirs[i];
    if (!(std::fabs(found - expected) <= tolerance + tolerance * std::fabs(expected))) {
      return absl::StrCat(found, " for ", expected, " at ", i);
    }
  }
  return "";
}

/// A case of two ways, the first ours, which write their answers into `answers` and must agree.
inline KernelCase CompareWays(const std::shared_ptr<const TwoAnswers>& answers, const Way& ours, const Way& theirs,
                              double tolerance = 1e-4) {
  KernelCase made;
  made.ways = {ours, theirs};
  made.check = [=] { return ours.run(), theirs.run(), Differences(*answers, tolerance); };
  return made;
}

}  // namespace processor::bench

#endif  // PROCESSOR_BENCH_KERNELS_FLOATS_H_
