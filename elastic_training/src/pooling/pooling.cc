// SPDX-License-Identifier: Apache-2.0
#include "src/pooling/pooling.h"

#include <algorithm>
#include <cmath>

#include "src/storage/finite_rows.h"

namespace elastic_training {
namespace {

bool Has(const Bags& bags, int64_t position) { return bags.masked == nullptr || bags.masked[position] == 0; }

float Weight(const Bags& bags, int64_t position) { return bags.weights == nullptr ? 1.0f : bags.weights[position]; }

float Divisor(const Bags& bags, size_t bag) {
  if (bags.combiner == Combiner::kSum) return 1.0f;
  float sum = 0;
  for (int64_t i = bags.splits[bag]; i < bags.splits[bag + 1]; ++i) {
    if (!Has(bags, i)) continue;
    const float weight = Weight(bags, i);
    sum += bags.combiner == Combiner::kMean ? weight : weight * weight;
  }
  return bags.combiner == Combiner::kMean ? sum : std::sqrt(sum);
}

}  // namespace

void Pool(const Bags& bags, const float* rows, size_t dim, float* pooled) {
  for (size_t bag = 0; bag < bags.count; ++bag) {
    float* const out = pooled + bag * dim;
    std::fill_n(out, dim, 0.0f);
    for (int64_t i = bags.splits[bag]; i < bags.splits[bag + 1]; ++i) {
      if (Has(bags, i)) AddScaled(rows + i * dim, Weight(bags, i), dim, out);
    }
    const float divisor = Divisor(bags, bag);
    if (divisor == 1) continue;
    for (size_t j = 0; j < dim; ++j) out[j] = divisor == 0 ? 0 : out[j] / divisor;
  }
}

void PoolGradient(const Bags& bags, int32_t* bag_of, float* scales) {
  for (size_t bag = 0; bag < bags.count; ++bag) {
    const float divisor = Divisor(bags, bag);
    for (int64_t i = bags.splits[bag]; i < bags.splits[bag + 1]; ++i) {
      bag_of[i] = static_cast<int32_t>(bag);
      scales[i] = divisor == 0 || !Has(bags, i) ? 0 : Weight(bags, i) / divisor;
    }
  }
}

}  // namespace elastic_training
