// SPDX-License-Identifier: Apache-2.0
// Compares the outputs of a request that ran in a batch with those of the same request alone. Pure functions.
#ifndef PROCESSOR_RUNTIME_ROWS_ANSWERS_AGREE_H_
#define PROCESSOR_RUNTIME_ROWS_ANSWERS_AGREE_H_

#include <vector>

#include "tensorflow/core/framework/tensor.h"

namespace processor {

/// How much outputs may differ and still count as equal, because products over another number of rows are summed in
/// another order: an error relative to the number, plus a share of the largest number of the output, for logits near 0.
struct Tolerance {
  double relative = 1e-3;
  double of_largest = 1e-5;

  /// The tolerance of a model that computes in 16 bits, where a sum may be rounded up or down.
  static Tolerance OfHalves() { return {2e-2, 1e-3}; }
};

/// Whether two tensors agree. NaN agrees with NaN; values that are not floating-point numbers must be equal. `largest`:
/// the largest finite absolute number of the output in all requests that are compared.
bool Agree(const tensorflow::Tensor& joint, const tensorflow::Tensor& alone, const Tolerance& tolerance,
           double largest);

/// Returns the largest finite absolute number in a tensor; 0 if there is none.
double LargestOf(const tensorflow::Tensor& tensor);

/// Whether two tensors are equal bit by bit.
bool Same(const std::vector<tensorflow::Tensor>& a, const std::vector<tensorflow::Tensor>& b);

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_ROWS_ANSWERS_AGREE_H_
