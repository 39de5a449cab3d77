// SPDX-License-Identifier: Apache-2.0
// Are the answers of a request that ran with others those that it gets alone?
#ifndef PROCESSOR_RUNTIME_ROWS_ANSWERS_AGREE_H_
#define PROCESSOR_RUNTIME_ROWS_ANSWERS_AGREE_H_

#include <vector>

#include "tensorflow/core/framework/tensor.h"

namespace processor {

/// Products over other numbers of rows are summed in another order. What differs by no more counts as the same: relative
/// to the number itself, plus a share of the largest of the output, which a logit near 0 may be off by.
struct Tolerance {
  double relative = 1e-3;
  double of_largest = 1e-5;

  /// Where a model computes in 16 bits, a sum that lies between two of them may fall to either.
  static Tolerance OfHalves() { return {2e-2, 1e-3}; }
};

/// Do two tensors agree? NaN agrees with NaN; what are no floating-point numbers must be equal. `largest`: the largest
/// absolute number of the output that is finite, in all requests that are looked at.
bool Agree(const tensorflow::Tensor& joint, const tensorflow::Tensor& alone, const Tolerance& tolerance,
           double largest);

/// The largest finite absolute number in a tensor; 0 where it has none.
double LargestOf(const tensorflow::Tensor& tensor);

/// Are they equal bit by bit?
bool Same(const std::vector<tensorflow::Tensor>& a, const std::vector<tensorflow::Tensor>& b);

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_ROWS_ANSWERS_AGREE_H_
