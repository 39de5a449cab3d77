// SPDX-License-Identifier: Apache-2.0
#ifndef PROCESSOR_TESTS_RUNTIME_SLEEP_MS_H_
#define PROCESSOR_TESTS_RUNTIME_SLEEP_MS_H_

#include <chrono>
#include <thread>

namespace processor {

inline void SleepMs(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

}  // namespace processor

#endif  // PROCESSOR_TESTS_RUNTIME_SLEEP_MS_H_
