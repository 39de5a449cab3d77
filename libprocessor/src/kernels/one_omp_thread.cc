// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/one_omp_thread.h"

// oneDNN brings its OpenMP library along, and these are that one's: nothing is linked for two calls.
extern "C" {
__attribute__((weak)) int omp_get_max_threads();
__attribute__((weak)) void omp_set_num_threads(int);
}

namespace processor {

OneOmpThread::OneOmpThread() {
  if (omp_get_max_threads == nullptr || omp_set_num_threads == nullptr) return;
  before_ = omp_get_max_threads();
  if (before_ != 1) omp_set_num_threads(1);
}

OneOmpThread::~OneOmpThread() {
  if (before_ != 1) omp_set_num_threads(before_);
}

}  // namespace processor
