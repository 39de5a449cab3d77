// SPDX-License-Identifier: Apache-2.0
// The norm of a row.
#ifndef ELASTIC_TRAINING_BASE_NORM_H_
#define ELASTIC_TRAINING_BASE_NORM_H_

#include <cmath>
#include <cstddef>

namespace elastic_training {

/// Returns the Euclidean norm of weights[dim].
inline double NormOf(const float* weights, size_t dim) {
  double squares = 0;
  for (size_t i = 0; i < dim; ++i) squares += static_cast<double>(weights[i]) * weights[i];
  return std::sqrt(squares);
}

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_BASE_NORM_H_
