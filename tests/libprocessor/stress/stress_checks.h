// SPDX-License-Identifier: Apache-2.0
// What the stress programs count as wrong.
#ifndef PROCESSOR_TESTS_STRESS_STRESS_CHECKS_H_
#define PROCESSOR_TESTS_STRESS_STRESS_CHECKS_H_

#include <atomic>
#include <cstdio>
#include <string>

#include "processor/processor.h"

namespace stress {

inline std::atomic<int> faults{0};

/// Counts a fault, and prints the first ones. Any thread may call.
inline void Fault(const std::string& what) {
  if (++faults <= 20) std::fprintf(stderr, "fault: %s\n", what.c_str());
}

inline std::string Describe(const char* what, const processor_error& error) {
  return std::string(what) + ": " + processor_status_name(error.code) + " (" + error.message + ")";
}

/// Returns whether a request may end so while its model is freed or drained, or has more to do than its queue holds, or if
/// the request is canceled or comes too late.
inline bool IsExpected(processor_status status) {
  switch (status) {
    case PROCESSOR_OK:
    case PROCESSOR_CANCELLED:
    case PROCESSOR_DEADLINE_EXCEEDED:
    case PROCESSOR_RESOURCE_EXHAUSTED:
    case PROCESSOR_FAILED_PRECONDITION:
    case PROCESSOR_UNAVAILABLE:
      return true;
    default:
      return false;
  }
}

}  // namespace stress

#endif  // PROCESSOR_TESTS_STRESS_STRESS_CHECKS_H_
