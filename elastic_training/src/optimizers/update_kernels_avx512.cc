// SPDX-License-Identifier: Apache-2.0
// Compiled for AVX-512; called only where the CPU has it.
#include "src/optimizers/update_kernels_loops.h"

namespace elastic_training {

extern const UpdateKernels* const kUpdateKernelsAvx512;
const UpdateKernels* const kUpdateKernelsAvx512 = &kUpdateKernels;

}  // namespace elastic_training
