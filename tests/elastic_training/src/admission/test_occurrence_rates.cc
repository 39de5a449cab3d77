// SPDX-License-Identifier: Apache-2.0
#include "src/admission/occurrence_rates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace elastic_training {
namespace {

// Counts of a key with a Gamma rate, by the definition: the integral over rates of the Poisson probabilities.
double TailByIntegral(double shape, double inverse_scale, double length, int at_least) {
  double below = 0;
  const int steps = 100000;
  // Over u = rate^power; of a shape below 1, the density then has no pole at zero.
  const double power = std::min(shape, 1.0), last = std::pow((shape + 40) / inverse_scale, power);
  for (int i = 0; i < steps; ++i) {
    const double u = last * (i + 0.5) / steps, rate = std::pow(u, 1 / power);
    const double density = std::exp(shape * std::log(inverse_scale) + (shape - power) * std::log(rate) -
                                    inverse_scale * rate - std::lgamma(shape)) /
                           power;
    for (int count = 0; count < at_least; ++count) {
      below += density * last / steps *
               std::exp(-rate * length + count * std::log(rate * length) - std::lgamma(count + 1.0));
    }
  }
  return 1 - below;
}

TEST(OccurrenceRates, TailIsThatOfPoissonCountsWithGammaRates) {
  for (double shape : {0.2, 0.5, 1.2, 3.0}) {
    for (int at_least : {1, 3, 6}) {
      const double inverse_scale = 40, length = 60;
      EXPECT_NEAR(NegativeBinomialTail(shape, length / (inverse_scale + length), at_least),
                  TailByIntegral(shape, inverse_scale, length, at_least), 2e-4)
          << shape << " " << at_least;
    }
  }
}

TEST(OccurrenceRates, TailsAtTheirLimits) {
  EXPECT_EQ(NegativeBinomialTail(0.3, 0.0, 1), 0);
  EXPECT_EQ(NegativeBinomialTail(0.3, 0.7, 0), 1);
  EXPECT_NEAR(PoissonTail(2.0, 2), 1 - 3 * std::exp(-2.0), 1e-12);
  // With a huge shape and a small chance it is a Poisson distribution.
  EXPECT_NEAR(NegativeBinomialTail(1e7, 2e-7, 3), PoissonTail(2.0, 3), 1e-5);
  const RatePrior prior{0.8, 10};
  EXPECT_EQ(ChanceOfThreshold(prior, 5, 5, 100, 50), 1);
  EXPECT_EQ(ChanceOfThreshold(prior, 4, 5, 100, 100), 0);
  EXPECT_LT(ChanceOfThreshold(prior, 1, 5, 100, 1000), ChanceOfThreshold(prior, 2, 5, 100, 1000));
}

// The weakness of the published estimator, in figures: at a tenth of the stream it gives a new key 0.98; keys that follow a
// power law reach the threshold far more rarely.
TEST(OccurrenceRates, PublishedEstimatorHardlyFiltersEarly) {
  EXPECT_NEAR(PoissonTail(1 * (1 - 0.1) / 0.1, 4), 0.98, 0.005);
  EXPECT_NEAR(PoissonTail(1 * (1 - 0.5) / 0.5, 4), 0.02, 0.002);
  EXPECT_LT(ChanceOfThreshold({0.8, 0}, 1, 5, 0.1, 1), 0.2);
}

// A process with the rates that the prior describes: keys with the count K rise with the intensity (K - discount) / (start + t), and
// new ones come. The fit finds the two numbers again.
TEST(OccurrenceRates, FitRecoversThePriorThatMadeTheCounts) {
  struct Case {
    double discount, start;
  };
  for (const Case& one : {Case{0.75, 1.0}, Case{0.3, 2000.0}, Case{-1.0, 20000.0}}) {
    std::mt19937_64 random(7);
    std::uniform_real_distribution<double> uniform(0, 1);
    const int threshold = 6;
    const double end = 20000;
    OccurrenceHistory history(threshold);
    const double bin = 100;
    std::vector<double> keys(static_cast<size_t>(end / bin)), counts(keys.size());
    for (int key = 0; key < 60000; ++key) {
      // New keys come evenly; their rates are then those of a key seen once.
      double time = end * uniform(random);
      for (int count = 1; count < threshold; ++count) {
        // The next rise: P(none until s) = ((start + t) / (start + s))^(count - discount).
        const double next = (one.start + time) * std::pow(uniform(random), -1 / (count - one.discount)) - one.start;
        for (size_t i = static_cast<size_t>(time / bin); i < keys.size() && i * bin < next; ++i) {
          const double waited = (std::min(next, (i + 1) * bin) - std::max(time, i * bin)) / bin;
          keys[i] += waited;
          counts[i] += waited * count;
        }
        if (next >= end) break;
        history.AddRise(count, next);
        time = next;
      }
    }
    for (size_t i = 0; i < keys.size(); ++i) history.AddWait(keys[i], counts[i], bin, (i + 0.5) * bin);
    const RatePrior fitted = history.Fit(end);
    // What matters are the chances.
    for (int count : {1, 2, 4}) {
      EXPECT_NEAR(ChanceOfThreshold(fitted, count, threshold, 0.4 * end, end),
                  ChanceOfThreshold({one.discount, one.start}, count, threshold, 0.4 * end, end), 0.01)
          << "discount " << fitted.discount << " for " << one.discount << ", start " << fitted.start << " for "
          << one.start;
    }
    if (one.discount > 0.5) {
      EXPECT_NEAR(fitted.discount, one.discount, 0.02);
    }

    OccurrenceHistory copy(threshold);
    copy.SetNumbers(history.Numbers());
    EXPECT_EQ(copy.Fit(end).discount, fitted.discount);
    EXPECT_EQ(copy.Fit(end).start, fitted.start);
  }
}

}  // namespace
}  // namespace elastic_training
