// SPDX-License-Identifier: Apache-2.0
// Compares the outputs of a precision with those of fp32, by the rules of the certificate (docs/graph_tools.md).
#ifndef PROCESSOR_RUNTIME_FOLLOW_PRECISION_COMPARISON_H_
#define PROCESSOR_RUNTIME_FOLLOW_PRECISION_COMPARISON_H_

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "tensorflow/core/framework/tensor.h"

namespace processor {

/// What a precision loses.
struct PrecisionLoss {
  double max_difference = 0;         // of all outputs
  double rank_correlation_loss = 0;  // of the output that loses most
  std::string problem;               // why it is not permitted, as a sentence; empty if it is
};

/// For one thread.
class PrecisionComparison {
 public:
  /// Adds an output of a request. `name`: of the output, for the text of a problem. `exact`: in fp32.
  void Add(const std::string& name, const tensorflow::Tensor& exact, const tensorflow::Tensor& other);

  /// \param precision Its name, for the text of a problem.
  /// \param limit The largest permitted loss of rank correlation of an output.
  PrecisionLoss Judge(const std::string& precision, double limit) const;

 private:
  struct Output {
    std::vector<float> exact, other;  // finite scores of all requests
    double max_difference = 0;
    size_t beyond = 0;  // scores that are not equal within the tolerance of the certificate
    size_t far = 0;     // and by more than any score may differ
    bool others_differ = false;
  };

  static void AddScores(const tensorflow::Tensor& exact, const tensorflow::Tensor& other, Output* output);

  std::map<std::string, Output> outputs_;
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_FOLLOW_PRECISION_COMPARISON_H_
