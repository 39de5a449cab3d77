// SPDX-License-Identifier: Apache-2.0
// How much memory versions will take, and how much there is.
#ifndef PROCESSOR_HOST_VERSIONS_MEMORY_BUDGET_H_
#define PROCESSOR_HOST_VERSIONS_MEMORY_BUDGET_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace processor {

/// What a version will take: its own memory, and tables, which several versions map once.
struct MemoryEstimate {
  int64_t own_bytes = 0;                  // graph and variables
  std::map<std::string, int64_t> tables;  // by what makes them one: the hash of their content, else the file

  int64_t total() const;
};

/// Looks at the files of a SavedModel. `checkpoint_dir`: where its variables come from instead; may be empty. A model that
/// follows such a folder counts twice, since each switch to a later checkpoint loads it beside the one before.
/// \return NOT_FOUND for a folder that is not there.
absl::Status EstimateMemory(const std::string& saved_model_dir, const std::string& checkpoint_dir,
                            MemoryEstimate* estimate);

/// What several versions take together.
int64_t MemoryInUse(const std::vector<const MemoryEstimate*>& versions);

/// What a version would take beside those that are there.
int64_t MemoryToAdd(const std::vector<const MemoryEstimate*>& versions, const MemoryEstimate& another);

/// The memory limit of this process's cgroup (v2 or v1) or the memory of the machine, whichever is less, less a tenth.
/// `root`: "" or, for tests, a folder that holds proc and sys.
int64_t MemoryOfMachine(const std::string& root = "");

}  // namespace processor

#endif  // PROCESSOR_HOST_VERSIONS_MEMORY_BUDGET_H_
