// SPDX-License-Identifier: Apache-2.0
// For threads whose work must not slow down requests.
#ifndef PROCESSOR_RUNTIME_THREADS_BACKGROUND_THREAD_H_
#define PROCESSOR_RUNTIME_THREADS_BACKGROUND_THREAD_H_

namespace processor {

/// Makes the calling thread run in idle time until it ends. If the CPUs have hardly any, it takes a tenth of one CPU, or it
/// would never get done. Measures for a tenth of a second.
void RunInIdleTime();

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_THREADS_BACKGROUND_THREAD_H_
