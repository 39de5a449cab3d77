// SPDX-License-Identifier: Apache-2.0
// Where the tables of a model are kept: the key `tables` of its configuration.
#ifndef PROCESSOR_RUNTIME_CONFIG_TABLE_OPTIONS_H_
#define PROCESSOR_RUNTIME_CONFIG_TABLE_OPTIONS_H_

#include <cstdint>
#include <string>

#include "src/base/json_value.h"

namespace processor {

enum class TableTier {
  kMapped,    // files mapped into memory
  kTiered,    // indexes and often read rows in memory, other rows in files
  kResident,  // copied to memory that processes share
};

/// Returns "mapped", "tiered" or "resident".
const char* TableTierName(TableTier tier);

struct TableOptions {
  TableTier tier = TableTier::kMapped;
  int64_t memory = 0;        // bytes of the indexes and caches of all tables; of kTiered
  bool early_reads = true;   // whether requests wait for rows of kTiered before they take a place of a session
  std::string share_folder;  // in which processes find the memory of kResident; empty: the user's
};

/// Reads the object `tables`; one that is absent leaves `dst` as it is.
void ReadTableOptions(const JsonValue& value, TableOptions* dst);

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_CONFIG_TABLE_OPTIONS_H_
