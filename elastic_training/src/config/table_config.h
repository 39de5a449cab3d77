// SPDX-License-Identifier: Apache-2.0
// The JSON that describes a table (elastic_training/config.py writes it).
#ifndef ELASTIC_TRAINING_CONFIG_TABLE_CONFIG_H_
#define ELASTIC_TRAINING_CONFIG_TABLE_CONFIG_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

namespace elastic_training {

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
};

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_CONFIG_TABLE_CONFIG_H_
