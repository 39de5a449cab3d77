// SPDX-License-Identifier: Apache-2.0
// Compiled for AVX2; called only where the CPU has it.
#include "src/optimizers/update_kernels_loops.h"

namespace elastic_training {

extern const UpdateKernels* const kUpdateKernelsAvx2;
const UpdateKernels* const kUpdateKernelsAvx2 = &kUpdateKernels;

}  // namespace elastic_training
