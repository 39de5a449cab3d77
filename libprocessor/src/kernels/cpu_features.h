// SPDX-License-Identifier: Apache-2.0
// The features of the CPU by which kernels choose their form. Any thread may call these functions.
#ifndef PROCESSOR_KERNELS_CPU_FEATURES_H_
#define PROCESSOR_KERNELS_CPU_FEATURES_H_

#include <vector>

// Attributes that compile a form of a function for its instruction set.
#define PROCESSOR_TARGET_AVX2 __attribute__((target("avx2,fma")))
#define PROCESSOR_TARGET_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")))

namespace processor {

/// The instruction sets for which our kernels have forms; each includes those before it.
enum class Isa { kPlain, kAvx2, kAvx512 };

struct CpuFeatures {
  Isa isa = Isa::kPlain;
  bool avx512_bf16 = false;
  bool avx512_vnni = false;
  bool amx_bf16 = false;
  bool amd = false;
};

/// Returns the features of this CPU that the operating system enables. ONEDNN_MAX_CPU_ISA may disable the
/// arithmetic of bfloat16 and int8.
const CpuFeatures& ThisCpu();

/// Returns "avx512", "avx2" or "plain".
const char* IsaName(Isa isa);

/// Returns all forms that this CPU can run, the plain one first.
std::vector<Isa> SupportedIsas();

}  // namespace processor

#endif  // PROCESSOR_KERNELS_CPU_FEATURES_H_
