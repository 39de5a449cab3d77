// SPDX-License-Identifier: Apache-2.0
// How much memory the process may have.
#ifndef PROCESSOR_BASE_MACHINE_MEMORY_H_
#define PROCESSOR_BASE_MACHINE_MEMORY_H_

#include <cstdint>
#include <string>

namespace processor {

/// Returns the memory limit of this process's cgroup (v2 or v1) or the memory of the machine in bytes, whichever is less.
/// `root`: "" or, for tests, a folder that holds proc and sys.
int64_t MemoryAllowed(const std::string& root = "");

}  // namespace processor

#endif  // PROCESSOR_BASE_MACHINE_MEMORY_H_
