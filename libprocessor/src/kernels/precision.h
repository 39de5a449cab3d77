// SPDX-License-Identifier: Apache-2.0
// The number formats in which a dense tower computes. Any thread may call these functions.
#ifndef PROCESSOR_KERNELS_PRECISION_H_
#define PROCESSOR_KERNELS_PRECISION_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "src/kernels/cpu_features.h"

namespace processor {

enum class Precision {
  kFloat32,
  /// Weights and the activations between layers are bfloat16, sums float: for CPUs that multiply bfloat16 faster.
  kBfloat16,
  /// Weights are rounded to bfloat16, everything else is float. It halves the memory that one row waits for, also if
  /// bfloat16 arithmetic is absent or slower than float (AVX512_BF16 of Intel's CPUs without AMX).
  kBfloat16Weights,
  /// Weights are int8, sources of products are rounded to bytes row by row, sums are exact; everything else is float.
  kInt8,
};

/// Whether the CPU has the instructions of our products of int8: AVX512_VNNI.
bool HasInt8(const CpuFeatures& cpu);

/// Reads the attribute `precision` of an op: "fp32", "bf16", "bf16_weights" (only weights are rounded), "int8" or "auto",
/// which means "fp32" here, because the library replaces it before if another precision is allowed.
/// \return INVALID_ARGUMENT for another text, FAILED_PRECONDITION for bf16 on a CPU without AVX2, and for int8 on one that
///         has no instructions for it.
absl::Status ChoosePrecision(std::string_view attribute, const CpuFeatures& cpu, Precision* precision);

/// Returns those of "fp32", "bf16" and "int8" that towers can compute with.
std::vector<std::string> SupportedPrecisions(const CpuFeatures& cpu = ThisCpu());

/// Returns "fp32", "bf16", "bf16 weights" or "int8".
const char* PrecisionName(Precision precision);

}  // namespace processor

#endif  // PROCESSOR_KERNELS_PRECISION_H_
