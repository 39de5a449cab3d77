// SPDX-License-Identifier: Apache-2.0
#include "src/optimizers/update_kernels.h"

#include "src/optimizers/update_kernels_loops.h"

namespace elastic_training {

#ifdef ELASTIC_TRAINING_X86
extern const UpdateKernels* const kUpdateKernelsAvx2;
extern const UpdateKernels* const kUpdateKernelsAvx512;
#endif

namespace {

double PowerBySquaring(double base, uint32_t exponent) {
  double power = 1.0;
  for (; exponent != 0; exponent >>= 1) {
    if (exponent & 1) power *= base;
    base *= base;
  }
  return power;
}

}  // namespace

AdamCorrection CorrectionAfter(const UpdateConstants& constants, uint32_t updates) {
  const double first = 1.0 - PowerBySquaring(static_cast<double>(constants.beta_1), updates);
  const double second = std::sqrt(1.0 - PowerBySquaring(static_cast<double>(constants.beta_2), updates));
  return {static_cast<float>(second / first), static_cast<float>(1.0 / first), static_cast<float>(1.0 / second)};
}

std::vector<UpdateIsa> SupportedUpdateIsas() {
  std::vector<UpdateIsa> isas = {UpdateIsa::kPlain};
#ifdef ELASTIC_TRAINING_X86
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2")) return isas;
  isas.push_back(UpdateIsa::kAvx2);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq")) {
    isas.push_back(UpdateIsa::kAvx512);
  }
#endif
  return isas;
}

const UpdateKernels& UpdateKernelsFor(UpdateIsa isa) {
#ifdef ELASTIC_TRAINING_X86
  if (isa == UpdateIsa::kAvx512) return *kUpdateKernelsAvx512;
  if (isa == UpdateIsa::kAvx2) return *kUpdateKernelsAvx2;
#endif
  (void)isa;
  return kUpdateKernels;
}

const UpdateKernels& BestUpdateKernels() {
  static const UpdateKernels& best = UpdateKernelsFor(SupportedUpdateIsas().back());
  return best;
}

}  // namespace elastic_training
