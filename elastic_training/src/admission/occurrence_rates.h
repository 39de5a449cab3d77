// SPDX-License-Identifier: Apache-2.0
// How often the keys of one feature occur: a distribution of rates, fitted while the keys arrive.
//
// A key that occurs at the rate r per position of the feature's stream has been seen K times by position t. The published
// filter estimates r = K / t, which is right on average over all keys, but wrong for those that have been seen: a
// stream is full of keys that occur once, and of those with K = 1 at position t most have a rate far below 1 / t. The
// rates of a feature's keys follow a power law, so they have the prior density
//     p(r) ~ r^(-discount - 1) exp(-start * r),   discount < 1, start >= 0 [positions],
// a Gamma density whose shape may be negative because only keys that occurred are asked about (for 0 < discount < 1 it
// is the power law of Zipf's exponent 1 / discount). After K >= 1 occurrences the rate is Gamma(K - discount, start + t), so
//     expected rate   = (K - discount) / (start + t)
//     count until T   = negative binomial with shape K - discount and chance (T - t) / (start + T).
// With discount 0.8, which is ordinary, a key seen once has a fifth of the rate that the published estimator gives it.
#ifndef ELASTIC_TRAINING_ADMISSION_OCCURRENCE_RATES_H_
#define ELASTIC_TRAINING_ADMISSION_OCCURRENCE_RATES_H_

#include <array>
#include <cstdint>
#include <vector>

namespace elastic_training {

struct RatePrior {
  double discount = 0;
  double start = 0;  // Positions of the stream.
};

/// P(X >= at_least) of a negative binomial X with P(0) = (1 - chance)^shape; shape > 0, 0 <= chance < 1.
double NegativeBinomialTail(double shape, double chance, int at_least);

/// P(X >= at_least) of a Poisson X with this mean.
double PoissonTail(double mean, int at_least);

/// Probability that a key seen `count` >= 1 times by `position` is seen at least `threshold` times by `horizon`.
double ChanceOfThreshold(const RatePrior& prior, int count, int threshold, double position, double horizon);

/// What the fit needs of all that happened to keys below the threshold: which counts went up, and how long how many
/// keys waited with which count. Keys that are admitted or evicted leave without a trace; since this depends only on what
/// was seen of them, the fit stays unbiased.
class OccurrenceHistory {
 public:
  explicit OccurrenceHistory(int threshold) : risen_(threshold, 0.0) {}

  /// One key's count rises from `count` >= 1 to count + 1 at `position`.
  void AddRise(int count, double position, double times = 1);

  /// `keys` keys whose counts add up to `counts` wait for `length` positions around `position`.
  void AddWait(double keys, double counts, double length, double position);

  /// The most likely prior. `position`: the end of what has been seen.
  RatePrior Fit(double position) const;

  /// Number of rises seen: how much the fit rests on.
  double rises() const;

  void Add(const OccurrenceHistory& other);

  /// All numbers in a fixed order, for checkpoints; the count depends on the threshold only.
  std::vector<double> Numbers() const;
  void SetNumbers(const std::vector<double>& numbers);

 private:
  // Positions are kept in bins that grow by the square root of two.
  static constexpr int kBins = 96;
  struct Bin {
    double rises = 0, waits = 0, weighted_waits = 0, positions = 0;
  };
  static int BinOf(double position);

  struct Likelihood {
    double value, discount;
  };
  Likelihood AtStart(double start) const;

  std::array<Bin, kBins> bins_{};
  std::vector<double> risen_;  // By count; element 0 is not used.
};

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_ADMISSION_OCCURRENCE_RATES_H_
