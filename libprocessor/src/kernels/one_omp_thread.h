// SPDX-License-Identifier: Apache-2.0
// Keeps oneDNN on the thread that calls it.
#ifndef PROCESSOR_KERNELS_ONE_OMP_THREAD_H_
#define PROCESSOR_KERNELS_ONE_OMP_THREAD_H_

namespace processor {

/// While an object lives, OpenMP regions of its thread have one thread. It costs nothing if the thread is set so already,
/// as the library's threads are.
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
