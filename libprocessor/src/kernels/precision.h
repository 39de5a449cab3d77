// SPDX-License-Identifier: Apache-2.0
// In which numbers a dense tower computes.
#ifndef PROCESSOR_KERNELS_PRECISION_H_
#define PROCESSOR_KERNELS_PRECISION_H_

#include <string_view>

#include "absl/status/status.h"
#include "src/kernels/cpu_features.h"

namespace processor {

enum class Precision {
  kFloat32,
  /// Weights and the activations between layers are bfloat16, sums float: for CPUs that multiply bfloat16 faster.
  kBfloat16,
  /// Weights are rounded to bfloat16, all else is float. Half the memory to read, which is what one row waits for;
  /// where bfloat16 arithmetic is absent or slower than float (AVX512_BF16 of Intel's CPUs without AMX).
  kBfloat16Weights,
};

/// Chooses for the attribute `precision` of an op: "fp32", "bf16", "bf16_weights" (of which no more than the weights is
/// ever rounded), or "auto", which the library has replaced by one of them where it means more than "fp32".
/// \return INVALID_ARGUMENT for another text, FAILED_PRECONDITION for bf16 on a CPU without AVX2.
absl::Status ChoosePrecision(std::string_view attribute, const CpuFeatures& cpu, Precision* precision);

/// "fp32", "bf16" or "bf16 weights".
const char* PrecisionName(Precision precision);

}  // namespace processor

#endif  // PROCESSOR_KERNELS_PRECISION_H_
