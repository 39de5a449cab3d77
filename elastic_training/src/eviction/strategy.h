// SPDX-License-Identifier: Apache-2.0
// Which rows a table forgets: a value of each row, and the value below which rows are evicted.
#ifndef ELASTIC_TRAINING_EVICTION_STRATEGY_H_
#define ELASTIC_TRAINING_EVICTION_STRATEGY_H_

#include <cstddef>
#include <cstdint>

#include <nlohmann/json_fwd.hpp>

#include "src/storage/elastic_table.h"

namespace elastic_training {

class EvictionStrategy {
 public:
  /// Reads the "strategy" object of a table's "eviction". An empty one evicts nothing.
  /// \throws std::invalid_argument that names the field.
  EvictionStrategy(const nlohmann::json& config, size_t dim);

  /// Returns the value of a row at `now` [s since 2020]; the lowest values leave first.
  ///   ttl          minus the time since the last touch [s]
  ///   count_decay  occurrences, halved for every half-life since the last touch
  ///   l2_norm      L2 norm of the weights; 0 for candidates and released rows
  ///   score        count · log(1 + decayed occurrences) + norm · L2 norm
  double Value(const RowView& row, uint32_t now) const;

  /// Whether a row of this value is evicted even if there is room. The norm says nothing of candidates.
  bool Condemns(const RowView& row, double value) const {
    return value < minimum_ && !(kind_ == Kind::kNorm && row.kind == RowKind::kCandidate);
  }

  bool evicts() const { return kind_ != Kind::kNone; }

 private:
  enum class Kind { kNone, kAge, kCount, kNorm, kScore };

  Kind kind_ = Kind::kNone;
  size_t dim_;
  double minimum_ = 0, half_life_s_ = 1, count_weight_ = 0, norm_weight_ = 0;
};

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_EVICTION_STRATEGY_H_
