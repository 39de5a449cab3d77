// SPDX-License-Identifier: Apache-2.0
#ifndef ELASTIC_TRAINING_STORAGE_FINITE_ROWS_H_
#define ELASTIC_TRAINING_STORAGE_FINITE_ROWS_H_

#include <cstddef>

namespace elastic_training {

/// Tells whether all of `count` floats are numbers below 2^60, so that optimizers can add their squares for long.
bool AllUsable(const float* values, size_t count);

/// Adds `from[i] * scale` to `sum[i]`; the product is rounded first.
void AddScaled(const float* from, float scale, size_t count, float* sum);

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_STORAGE_FINITE_ROWS_H_
