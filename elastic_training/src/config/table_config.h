// SPDX-License-Identifier: Apache-2.0
// The JSON that describes a table (elastic_training/config.py writes it).
#ifndef ELASTIC_TRAINING_CONFIG_TABLE_CONFIG_H_
#define ELASTIC_TRAINING_CONFIG_TABLE_CONFIG_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

namespace elastic_training {

/// Where rows go that do not fit into memory.
struct TiersConfig {
  bool enabled = false;
  /// Most memory of the table [bytes].
  uint64_t memory_bytes = 0;
  /// The table's own folder, and the most bytes of rows in it.
  std::string folder;
  uint64_t ssd_bytes = UINT64_MAX;
};

struct TableConfig {
  static constexpr size_t kMaxDim = 1 << 16;

  /// Reads the JSON of a table.
  /// \throws std::invalid_argument that names the table and the field.
  static TableConfig Parse(const std::string& text);

  std::string name;
  bool string_keys = false;
  size_t dim = 0;
  uint64_t seed = 0;
  /// A gradient that is not finite is an error instead of being refused and counted.
  bool stop_on_nan = false;
  /// Value of all elements of the default row, which absent, refused and evicted keys read.
  float default_value = 0;
  /// What the parts read: InitialRow, Optimizer, Admission, and the sweeps of eviction.
  nlohmann::json initializer, optimizer, admission, eviction;
  TiersConfig tiers;
};

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_CONFIG_TABLE_CONFIG_H_
