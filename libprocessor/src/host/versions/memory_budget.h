// SPDX-License-Identifier: Apache-2.0
// Estimates the memory that versions will take, and returns the memory that is available. Pure functions, apart from
// reading files.
#ifndef PROCESSOR_HOST_VERSIONS_MEMORY_BUDGET_H_
#define PROCESSOR_HOST_VERSIONS_MEMORY_BUDGET_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "src/runtime/config/table_options.h"

namespace processor {

/// The memory that a version will take: its own, and that of tables and changed rows, which several versions share.
struct MemoryEstimate {
  int64_t own_bytes = 0;                  // graph and variables
  std::map<std::string, int64_t> tables;  // by the hash of their content, else by the file
  // Rows that deltas have changed in a loaded live model [bytes]. The key is the overlay, which versions of a timeline share.
  // They are counted, not estimated.
  std::map<const void*, int64_t> overlays;

  int64_t total() const;
};

/// Estimates memory from the files of a SavedModel. `checkpoint_dir`: where its variables come from instead; may be
/// empty. A model that follows such a folder counts twice, since a later checkpoint is loaded beside the one before.
/// Tiered tables count as the memory that `tables` allows them, or as their files if these are smaller. Resident tables count
/// beside mapped ones of the same files.
/// \return NOT_FOUND for a folder that does not exist.
absl::Status EstimateMemory(const std::string& saved_model_dir, const std::string& checkpoint_dir,
                            const TableOptions& tables, MemoryEstimate* estimate);

/// Returns the bytes that several versions take together.
int64_t MemoryInUse(const std::vector<const MemoryEstimate*>& versions);

/// Returns the bytes that another version would take in addition.
int64_t MemoryToAdd(const std::vector<const MemoryEstimate*>& versions, const MemoryEstimate& another);

/// Returns nine tenths of the memory limit of this process's cgroup (v2 or v1) or of the machine's memory, whichever is
/// less.
/// `root`: "" or, for tests, a folder that holds proc and sys.
int64_t MemoryOfMachine(const std::string& root = "");

}  // namespace processor

#endif  // PROCESSOR_HOST_VERSIONS_MEMORY_BUDGET_H_
