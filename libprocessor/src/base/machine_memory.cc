// SPDX-License-Identifier: Apache-2.0
#include "src/base/machine_memory.h"

#include <algorithm>

#include "src/base/free_memory.h"

namespace processor {

int64_t MemoryAllowed(const std::string& root) {
  int64_t allowed = MachineMemory(root, "MemTotal:");
  ForEachMemoryGroup(root, [&allowed](const MemoryGroup& group) { allowed = std::min(allowed, group.limit); });
  return allowed;
}

}  // namespace processor
