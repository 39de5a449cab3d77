// SPDX-License-Identifier: Apache-2.0
// What the CPU offers, as far as kernels choose by it.
#ifndef PROCESSOR_KERNELS_CPU_FEATURES_H_
#define PROCESSOR_KERNELS_CPU_FEATURES_H_

#include <vector>

// For functions with several forms: the one for this instruction set.
#define PROCESSOR_TARGET_AVX2 __attribute__((target("avx2,fma")))
#define PROCESSOR_TARGET_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")))

namespace processor {

/// The forms that kernels of ours have; each includes those before it.
enum class Isa { kPlain, kAvx2, kAvx512 };

struct CpuFeatures {
  Isa isa = Isa::kPlain;
  bool avx512_bf16 = false;
  bool amx_bf16 = false;
  bool amd = false;
};

/// The CPU that this process runs on. What the operating system withholds, it does not have; of bfloat16 arithmetic,
/// neither what ONEDNN_MAX_CPU_ISA withholds.
const CpuFeatures& ThisCpu();

/// "avx512", "avx2" or "plain".
const char* IsaName(Isa isa);

/// All forms that this CPU can run, the plain one first.
std::vector<Isa> SupportedIsas();

}  // namespace processor

#endif  // PROCESSOR_KERNELS_CPU_FEATURES_H_
