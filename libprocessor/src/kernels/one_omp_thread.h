// SPDX-License-Identifier: Apache-2.0
// Keeps oneDNN on the thread that calls it.
#ifndef PROCESSOR_KERNELS_ONE_OMP_THREAD_H_
#define PROCESSOR_KERNELS_ONE_OMP_THREAD_H_

namespace processor {

/// While one lives, OpenMP regions of this thread have one thread. Costs nothing where the caller has set that already,
/// as the threads of the library do.
class OneOmpThread {
 public:
  OneOmpThread();
  ~OneOmpThread();
  OneOmpThread(const OneOmpThread&) = delete;
  OneOmpThread& operator=(const OneOmpThread&) = delete;

 private:
  int before_ = 1;
};

}  // namespace processor

#endif  // PROCESSOR_KERNELS_ONE_OMP_THREAD_H_
