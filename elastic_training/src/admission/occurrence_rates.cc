// SPDX-License-Identifier: Apache-2.0
#include "src/admission/occurrence_rates.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace elastic_training {

double NegativeBinomialTail(double shape, double chance, int at_least) {
  if (at_least <= 0) return 1;
  double term = std::exp(shape * std::log1p(-chance));
  double below = term;
  for (int count = 1; count < at_least; ++count) {
    term *= (shape + count - 1) / count * chance;
    below += term;
  }
  return std::clamp(1 - below, 0.0, 1.0);
}

double PoissonTail(double mean, int at_least) {
  if (at_least <= 0) return 1;
  double term = std::exp(-mean);
  double below = term;
  for (int count = 1; count < at_least; ++count) {
    term *= mean / count;
    below += term;
  }
  return std::clamp(1 - below, 0.0, 1.0);
}

double ChanceOfThreshold(const RatePrior& prior, int count, int threshold, double position, double horizon) {
  if (count >= threshold) return 1;
  if (horizon <= position) return 0;
  return NegativeBinomialTail(count - prior.discount, (horizon - position) / (prior.start + horizon),
                              threshold - count);
}

int OccurrenceHistory::BinOf(double position) {
  return std::clamp(static_cast<int>(2 * std::log2(std::max(position, 1.0))), 0, kBins - 1);
}

void OccurrenceHistory::AddRise(int count, double position, double times) {
  if (count < 1 || count >= static_cast<int>(risen_.size())) return;
  risen_[count] += times;
  bins_[BinOf(position)].rises += times;
}

void OccurrenceHistory::AddWait(double keys, double counts, double length, double position) {
  Bin& bin = bins_[BinOf(position)];
  bin.waits += keys * length;
  bin.weighted_waits += counts * length;
  bin.positions += keys * length * position;
}

double OccurrenceHistory::rises() const {
  double sum = 0;
  for (double rises : risen_) sum += rises;
  return sum;
}

// A key with the count K rises with the intensity (K - discount) / (start + t). For a given start, the derivative of the
// log-likelihood by the discount, sum of waits / (start + t) - sum over K of risen[K] / (K - discount), falls with it, so the best
// discount is found by bisection.
OccurrenceHistory::Likelihood OccurrenceHistory::AtStart(double start) const {
  double exposure = 0, weighted = 0, log_times = 0;
  for (const Bin& bin : bins_) {
    if (bin.waits <= 0) continue;
    const double time = start + bin.positions / bin.waits;
    exposure += bin.waits / time;
    weighted += bin.weighted_waits / time;
    log_times += bin.rises * std::log(time);
  }
  double low = -1e3, high = 1 - 1e-6;
  for (int round = 0; round < 60; ++round) {
    const double middle = (low + high) / 2;
    double slope = exposure;
    for (size_t count = 1; count < risen_.size(); ++count) slope -= risen_[count] / (count - middle);
    (slope > 0 ? low : high) = middle;
  }
  const double discount = (low + high) / 2;
  double value = -log_times - weighted + discount * exposure;
  for (size_t count = 1; count < risen_.size(); ++count) value += risen_[count] * std::log(count - discount);
  return {value, discount};
}

RatePrior OccurrenceHistory::Fit(double position) const {
  // A grid first, because the likelihood may be flat far from its top, then golden sections around the best point.
  const double unit = std::max(position, 1.0);
  constexpr int kPoints = 24;
  const double first = std::log(1e-4 * unit), last = std::log(1e3 * unit);
  const double step = (last - first) / (kPoints - 1);
  int best = 0;
  double best_value = -INFINITY;
  for (int point = 0; point < kPoints; ++point) {
    const double value = AtStart(std::exp(first + step * point)).value;
    if (value > best_value) best = point, best_value = value;
  }
  double low = first + step * std::max(best - 1, 0), high = first + step * std::min(best + 1, kPoints - 1);
  constexpr double kSection = 0.6180339887498949;
  for (int round = 0; round < 24; ++round) {
    const double left = high - kSection * (high - low), right = low + kSection * (high - low);
    if (AtStart(std::exp(left)).value < AtStart(std::exp(right)).value) {
      low = left;
    } else {
      high = right;
    }
  }
  const double start = std::exp((low + high) / 2);
  return {AtStart(start).discount, start};
}

void OccurrenceHistory::Add(const OccurrenceHistory& other) {
  for (int bin = 0; bin < kBins; ++bin) {
    bins_[bin].rises += other.bins_[bin].rises;
    bins_[bin].waits += other.bins_[bin].waits;
    bins_[bin].weighted_waits += other.bins_[bin].weighted_waits;
    bins_[bin].positions += other.bins_[bin].positions;
  }
  for (size_t count = 0; count < risen_.size(); ++count) risen_[count] += other.risen_[count];
}

std::vector<double> OccurrenceHistory::Numbers() const {
  std::vector<double> numbers(risen_);
  for (const Bin& bin : bins_) numbers.insert(numbers.end(), {bin.rises, bin.waits, bin.weighted_waits, bin.positions});
  return numbers;
}

void OccurrenceHistory::SetNumbers(const std::vector<double>& numbers) {
  std::copy_n(numbers.begin(), risen_.size(), risen_.begin());
  auto next = numbers.begin() + static_cast<std::ptrdiff_t>(risen_.size());
  for (Bin& bin : bins_) {
    bin = {next[0], next[1], next[2], next[3]};
    next += 4;
  }
}

}  // namespace elastic_training
