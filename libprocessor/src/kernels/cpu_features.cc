// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/cpu_features.h"

#include "oneapi/dnnl/dnnl.h"

namespace processor {
namespace {

// A level of oneDNN has the bits of all levels that it includes.
bool OnednnHas(dnnl_cpu_isa_t level) {
  static const int effective = static_cast<int>(dnnl_get_effective_cpu_isa());
  return (effective & static_cast<int>(level)) == static_cast<int>(level);
}

CpuFeatures Detect() {
  CpuFeatures cpu;
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    cpu.isa = Isa::kAvx2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq")) {
      cpu.isa = Isa::kAvx512;
    }
  }
  // What oneDNN would use counts, because it does the arithmetic of bfloat16, and its limit is for ours as well; it also
  // asks the system for the registers of AMX.
  cpu.avx512_bf16 = OnednnHas(dnnl_cpu_isa_avx512_core_bf16);
  cpu.avx512_vnni = OnednnHas(dnnl_cpu_isa_avx512_core_vnni);
  cpu.amx_bf16 = OnednnHas(dnnl_cpu_isa_avx512_core_amx);
  cpu.amd = __builtin_cpu_is("amd") != 0;
  return cpu;
}

}  // namespace

const CpuFeatures& ThisCpu() {
  static const CpuFeatures cpu = Detect();
  return cpu;
}

const char* IsaName(Isa isa) {
  switch (isa) {
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kPlain:
      break;
  }
  return "plain";
}

std::vector<Isa> SupportedIsas() {
  std::vector<Isa> isas = {Isa::kPlain};
  if (ThisCpu().isa >= Isa::kAvx2) isas.push_back(Isa::kAvx2);
  if (ThisCpu().isa >= Isa::kAvx512) isas.push_back(Isa::kAvx512);
  return isas;
}

}  // namespace processor
