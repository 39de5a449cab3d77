// SPDX-License-Identifier: Apache-2.0
// Lets one allocation of the process fail, to see what is left behind: its program has an operator new of its own.
#ifndef PROCESSOR_TESTS_RUNTIME_FAILING_ALLOCATIONS_H_
#define PROCESSOR_TESTS_RUNTIME_FAILING_ALLOCATIONS_H_

namespace processor {

/// From here on allocation `number` (from 0), on whatever thread, throws std::bad_alloc; the others succeed.
void FailAllocation(long number);

/// Ends that. True if it has come to the allocation that was to fail.
bool AllocationHasFailed();

}  // namespace processor

#endif  // PROCESSOR_TESTS_RUNTIME_FAILING_ALLOCATIONS_H_
