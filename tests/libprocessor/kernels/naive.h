// SPDX-License-Identifier: Apache-2.0
// What tests of kernels share: numbers to compute with, how near an answer must be, and plans that are damaged.
#ifndef PROCESSOR_TESTS_KERNELS_NAIVE_H_
#define PROCESSOR_TESTS_KERNELS_NAIVE_H_

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace processor {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Numbers from -scale to scale.
inline std::vector<float> RandomFloats(size_t count, float scale, unsigned seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(-scale, scale);
  std::vector<float> values(count);
  for (float& value : values) value = uniform(generator);
  return values;
}

/// Numbers from -1 to 1.
inline std::vector<float> SomeFloats(size_t count, uint32_t seed = 1) { return RandomFloats(count, 1, seed); }

/// The text of a plan with up to four changes: letters changed, cut out, or copied from another place of it.
inline std::string DamagedPlan(const std::string& whole, std::mt19937* random) {
  const std::string letters = "{}[]\":,0123456789.-exh truefalsn\\\x80";
  std::string text = whole;
  for (uint32_t changes = 1 + (*random)() % 4; changes > 0 && !text.empty(); --changes) {
    const size_t at = (*random)() % text.size();
    switch ((*random)() % 3) {
      case 0:
        text[at] = letters[(*random)() % letters.size()];
        break;
      case 1:
        text.erase(at, 1 + (*random)() % 20);
        break;
      default:
        text.insert(at, whole.substr((*random)() % whole.size(), (*random)() % 30));
    }
  }
  return text;
}

inline double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/// `scale` is the size of what was added up, where that may cancel.
inline void ExpectNear(const std::vector<float>& found, const std::vector<double>& expected, double scale = 0) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_NEAR(found[i], expected[i], 1e-5 + 1e-5 * std::max(std::abs(expected[i]), scale)) << "at " << i;
  }
}

}  // namespace processor

#endif  // PROCESSOR_TESTS_KERNELS_NAIVE_H_
