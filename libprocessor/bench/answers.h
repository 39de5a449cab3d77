// SPDX-License-Identifier: Apache-2.0
// What the two engines answer, as named tensors, and whether it is the same.
#ifndef PROCESSOR_BENCH_ANSWERS_H_
#define PROCESSOR_BENCH_ANSWERS_H_

#include <map>
#include <string>
#include <string_view>

#include "tensorflow/core/framework/tensor.h"

namespace processor::bench {

using NamedTensors = std::map<std::string, tensorflow::Tensor>;

/// Reads the inputs of a serialized request. `protocol` is "eas" or "tfserving".
/// Throws std::runtime_error for damaged bytes and for dtypes that the benchmarks do not use.
NamedTensors ReadRequest(std::string_view bytes, std::string_view protocol);

/// Reads the outputs of a serialized response.
NamedTensors ReadResponse(std::string_view bytes, std::string_view protocol);

/// Largest |a - b| over all outputs. Throws std::runtime_error if names, dtypes or shapes differ, or a value is off by
/// more than the tolerance, |a - b| <= tolerance (1 + |b|): 1e-5 is the project's for fp32. Strings must be equal.
double CompareAnswers(const NamedTensors& a, const NamedTensors& b, double tolerance = 1e-5);

}  // namespace processor::bench

#endif  // PROCESSOR_BENCH_ANSWERS_H_
