// SPDX-License-Identifier: Apache-2.0
#include "src/eviction/strategy.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "src/base/norm.h"
#include "src/config/json_fields.h"

namespace elastic_training {
namespace {

constexpr double kDayS = 86400;

double AgeOf(const RowView& row, uint32_t now) { return now > row.touch ? now - row.touch : 0; }

double RowNorm(const RowView& row, size_t dim) { return row.weights == nullptr ? row.norm : NormOf(row.weights, dim); }

}  // namespace

EvictionStrategy::EvictionStrategy(const nlohmann::json& config, size_t dim) : dim_(dim) {
  if (config.empty()) return;
  const std::string kind =
      JsonFields("eviction strategy", config).Text("kind", "", {"ttl", "count_decay", "l2_norm", "score"});
  const JsonFields fields("eviction " + kind, config);
  if (kind == "ttl") {
    fields.RefuseOthers({"kind", "days"});
    kind_ = Kind::kAge;
    minimum_ = -fields.Number("days", 30, 1e-9, 36500) * kDayS;
    return;
  }
  if (kind == "l2_norm") {
    fields.RefuseOthers({"kind", "minimum"});
    kind_ = Kind::kNorm;
    minimum_ = fields.Number("minimum", 1e-3, 0, 1e30);
    return;
  }
  half_life_s_ = fields.Number("half_life_days", 7, 1e-9, 36500) * kDayS;
  if (kind == "count_decay") {
    fields.RefuseOthers({"kind", "half_life_days", "minimum"});
    kind_ = Kind::kCount;
    minimum_ = fields.Number("minimum", 1, 0, 1e30);
    return;
  }
  fields.RefuseOthers({"kind", "half_life_days", "minimum", "count", "norm"});
  kind_ = Kind::kScore;
  minimum_ = fields.Number("minimum", 0, 0, 1e30);
  count_weight_ = fields.Number("count", 1, 0, 1e30);
  norm_weight_ = fields.Number("norm", 1, 0, 1e30);
}

double EvictionStrategy::Value(const RowView& row, uint32_t now) const {
  if (kind_ == Kind::kAge) return -AgeOf(row, now);
  if (kind_ == Kind::kNorm) return RowNorm(row, dim_);
  const double decayed = row.count * std::exp2(-AgeOf(row, now) / half_life_s_);
  if (kind_ == Kind::kCount) return decayed;
  return count_weight_ * std::log1p(decayed) + norm_weight_ * RowNorm(row, dim_);
}

}  // namespace elastic_training
