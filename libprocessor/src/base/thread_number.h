// SPDX-License-Identifier: Apache-2.0
// A number for each thread, by which threads choose a part of something that they share.
#ifndef PROCESSOR_BASE_THREAD_NUMBER_H_
#define PROCESSOR_BASE_THREAD_NUMBER_H_

#include <atomic>
#include <cstddef>

namespace processor {

/// Returns the number of the calling thread: 0 for the first thread that asks, then 1, 2, ...
inline size_t ThreadNumber() {
  static std::atomic<size_t> threads{0};
  thread_local const size_t number = threads.fetch_add(1, std::memory_order_relaxed);
  return number;
}

}  // namespace processor

#endif  // PROCESSOR_BASE_THREAD_NUMBER_H_
