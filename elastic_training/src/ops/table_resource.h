// SPDX-License-Identifier: Apache-2.0
// A table as a resource of TensorFlow, and what all ops of tables need.
#ifndef ELASTIC_TRAINING_OPS_TABLE_RESOURCE_H_
#define ELASTIC_TRAINING_OPS_TABLE_RESOURCE_H_

#include <cstdint>
#include <ctime>
#include <new>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "src/cut/writers.h"
#include "src/eviction/eviction.h"
#include "src/eviction/tier_sweep.h"
#include "src/storage/elastic_table.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"

namespace elastic_training {

class TableResource : public tensorflow::ResourceBase {
 public:
  TableResource(TableConfig config, std::string json)
      : table(std::move(config)), eviction(&table), tiers(&table), json(std::move(json)) {}

  std::string DebugString() const override { return absl::StrCat("elastic table '", table.config().name, "'"); }
  int64_t MemoryUsed() const override { return static_cast<int64_t>(table.bytes()); }

  /// Returns the counters of the table, its filter and its sweeps as a JSON object.
  std::string Stats() const {
    nlohmann::json stats = table.Stats();
    stats["eviction"] = eviction.Stats();
    if (table.log() != nullptr) stats["tiers"] = tiers.Stats();
    return stats.dump();
  }

  ElasticTable table;
  Eviction eviction;
  TierSweep tiers;
  const std::string json;
};

using TablePointer = tensorflow::core::RefCountPtr<TableResource>;

/// Finds the table of input `index`.
inline absl::Status FindTable(tensorflow::OpKernelContext* context, int index, TablePointer* found) {
  return tensorflow::LookupResource(context, tensorflow::HandleFromInput(context, index), found);
}

/// Returns an error that names the table.
template <typename... Parts>
absl::Status TableError(const ElasticTable& table, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("table '", table.config().name, "': ", parts...));
}

/// Runs `body`, which may throw what the functions of a table throw.
template <typename Body>
absl::Status Guarded(const ElasticTable& table, const Body& body) {
  try {
    body();
    return absl::OkStatus();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat("table '", table.config().name, "': no memory for more rows"));
  } catch (const SsdError& error) {
    const std::string message = absl::StrCat("table '", table.config().name, "': ", error.what());
    switch (error.kind()) {
      case SsdError::Kind::kFull:
        return absl::ResourceExhaustedError(message);
      case SsdError::Kind::kDamaged:
        return absl::DataLossError(message);
      case SsdError::Kind::kDevice:
        return absl::UnavailableError(message);
      case SsdError::Kind::kRefused:
        return absl::FailedPreconditionError(message);
    }
    return absl::InternalError(message);
  } catch (const std::exception& error) {
    return TableError(table, error.what());
  }
}

/// Returns the time [s] since 2020-01-01 UTC.
inline uint32_t SecondsNow() { return static_cast<uint32_t>(std::time(nullptr) - 1577836800); }

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_OPS_TABLE_RESOURCE_H_
