// SPDX-License-Identifier: Apache-2.0
#include "src/base/rank_correlation.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace processor {
namespace {

// Returns ranks from 1; equal values share the mean of their ranks.
std::vector<double> Ranks(absl::Span<const float> values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    const double rank = (static_cast<double>(begin + 1) + static_cast<double>(end)) / 2;
    for (size_t i = begin; i < end; ++i) ranks[order[i]] = rank;
    begin = end;
  }
  return ranks;
}

bool AllFinite(absl::Span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
}

}  // namespace

bool RankCorrelation(absl::Span<const float> a, absl::Span<const float> b, double* correlation) {
  if (a.size() != b.size() || a.size() < 2 || !AllFinite(a) || !AllFinite(b)) return false;
  const std::vector<double> x = Ranks(a), y = Ranks(b);
  const double mean = (static_cast<double>(a.size()) + 1) / 2;
  double xy = 0, xx = 0, yy = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    xy += (x[i] - mean) * (y[i] - mean);
    xx += (x[i] - mean) * (x[i] - mean);
    yy += (y[i] - mean) * (y[i] - mean);
  }
  if (xx == 0 || yy == 0) return false;
  *correlation = xy / std::sqrt(xx * yy);
  return true;
}

}  // namespace processor
