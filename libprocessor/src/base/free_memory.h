// SPDX-License-Identifier: Apache-2.0
// How much memory the process can still take, and the cgroups that limit it.
#ifndef PROCESSOR_BASE_FREE_MEMORY_H_
#define PROCESSOR_BASE_FREE_MEMORY_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace processor {

/// A cgroup (v2 or v1) of this process, or one above it.
struct MemoryGroup {
  int64_t limit = 0;   // bytes; the largest number without a limit
  int64_t in_use = 0;  // bytes, without caches of files, which can be given back
};

/// Calls `visit` for the cgroups that may limit memory. `root`: "" or, for tests, a folder that holds proc and sys.
void ForEachMemoryGroup(const std::string& root, const std::function<void(const MemoryGroup&)>& visit);

/// Returns an entry of /proc/meminfo, such as "MemTotal:", in bytes; the largest number if it is not there.
int64_t MachineMemory(const std::string& root, std::string_view key);

/// Returns the bytes that this process can take now without swapping, and without leaving the limits of its cgroups: what is
/// free, and what caches of files would give back.
int64_t MemoryFree(const std::string& root = "");

}  // namespace processor

#endif  // PROCESSOR_BASE_FREE_MEMORY_H_
