// SPDX-License-Identifier: Apache-2.0
// Where the tables of a model are kept: tells their initializers, divides the memory of tiered ones among them, and reports.
#ifndef PROCESSOR_RUNTIME_VERSION_TABLE_TIERS_H_
#define PROCESSOR_RUNTIME_VERSION_TABLE_TIERS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"
#include "src/runtime/config/table_options.h"
#include "src/tables/embedding_table.h"
#include "tensorflow/core/framework/graph.pb.h"
#include "tensorflow/core/framework/resource_mgr.h"

namespace processor {

/// The memory that the tables of a model need.
struct TableSizes {
  uint64_t index_bytes = 0;  // keys, strings and checksums, which are always in memory
  uint64_t row_bytes = 0;
};

/// Adds up the tables in the folder `assets` of a SavedModel; equal files count once.
/// \return as ParseTableHeader(), with the name of the file.
absl::Status ReadTableSizes(const std::string& saved_model_dir, TableSizes* sizes);

/// Returns the memory of caches over the bytes of all rows.
/// \return INVALID_ARGUMENT if the memory is not above that of the indexes.
absl::Status CacheShare(const TableOptions& options, const TableSizes& sizes, double* share);

/// Sets in the graph's initializers of tables how these are kept.
absl::Status SetTableTier(const TableOptions& options, const std::string& saved_model_dir, tensorflow::GraphDef* graph);

/// Returns the tables that the initializers of a graph have made, each once.
std::vector<std::shared_ptr<const EmbeddingTable>> TablesOf(const tensorflow::GraphDef& graph,
                                                            tensorflow::ResourceMgr* resources);

/// The state of the tables of a version that are not mapped, all together.
struct TierState {
  /// The memory of resident tables.
  struct Resident {
    uint64_t bytes = 0, huge_bytes = 0, received_bytes = 0;
    PageKind pages = PageKind::kReserved;  // the least of all tables
  };

  uint64_t index_bytes = 0;  // of tiered tables
  TieredRows::Stats rows;    // likewise
  std::optional<Resident> resident;

  /// Returns the entry `tables` of reports.
  nlohmann::ordered_json Json() const;
};

/// Returns nothing if all tables are mapped.
std::optional<TierState> TierStateOf(const std::vector<std::shared_ptr<const EmbeddingTable>>& tables);

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_VERSION_TABLE_TIERS_H_
