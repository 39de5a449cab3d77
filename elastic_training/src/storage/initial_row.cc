// SPDX-License-Identifier: Apache-2.0
#include "src/storage/initial_row.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "src/base/hash.h"
#include "src/config/json_fields.h"

namespace elastic_training {

InitialRow::InitialRow(const nlohmann::json& config, uint64_t seed, size_t dim)
    : dim_(dim), seed_(Mix(seed + kGoldenStep)) {
  const JsonFields fields("initializer", config);
  const std::string kind =
      fields.Text("kind", "uniform", {"zeros", "constant", "uniform", "normal", "truncated_normal"});
  if (kind == "uniform") {
    fields.RefuseOthers({"kind", "low", "high"});
    kind_ = Kind::kUniform;
    const double low = fields.Number("low", -0.05, -1e30, 1e30);
    const double high = fields.Number("high", 0.05, -1e30, 1e30);
    if (low > high) throw std::invalid_argument("initializer: low is above high");
    offset_ = static_cast<float>(low);
    scale_ = static_cast<float>(high - low);
  } else if (kind == "normal" || kind == "truncated_normal") {
    fields.RefuseOthers({"kind", "mean", "stddev"});
    kind_ = Kind::kNormal;
    offset_ = static_cast<float>(fields.Number("mean", 0, -1e30, 1e30));
    scale_ = static_cast<float>(fields.Number("stddev", 0.05, 0, 1e30));
    if (kind == "truncated_normal") {
      low_ = 0.022750131948179195;  // the distribution function at -2
      high_ = 1 - low_;
    }
  } else {
    fields.RefuseOthers({"kind", "value"});
    kind_ = Kind::kConstant;
    offset_ = kind == "zeros" ? 0.0f : static_cast<float>(fields.Number("value", 0, -1e30, 1e30));
  }
}

void InitialRow::Fill(uint64_t key, float* weights) const {
  if (kind_ == Kind::kConstant) {
    std::fill_n(weights, dim_, offset_);
    return;
  }
  uint64_t state = Mix(key) ^ seed_;
  for (size_t i = 0; i < dim_; i += 2) {
    const uint64_t draw = Mix(state += kGoldenStep);
    for (size_t j = i; j < std::min(i + 2, dim_); ++j) {
      const uint32_t bits = static_cast<uint32_t>(j == i ? draw : draw >> 32) >> 8;
      if (kind_ == Kind::kUniform) {
        weights[j] = offset_ + (static_cast<float>(bits) + 0.5f) * 0x1p-24f * scale_;
      } else {
        const double u = low_ + (bits + 0.5) * 0x1p-24 * (high_ - low_);
        weights[j] = offset_ + static_cast<float>(InverseNormal(u)) * scale_;
      }
    }
  }
}

double InverseNormal(double p) {
  const double q = p - 0.5;
  if (std::fabs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * (((59.109374720 * r + 159.29113202) * r + 50.434271938) * r + 3.3871327179) /
           (((67.187563600 * r + 78.757757664) * r + 17.895169469) * r + 1);
  }
  double r = std::sqrt(-std::log(q < 0 ? p : 1 - p)), value;
  if (r <= 5) {
    r -= 1.6;
    value = (((0.17023821103 * r + 1.3067284816) * r + 2.7568153900) * r + 1.4234372777) /
            ((0.12021132975 * r + 0.73700164250) * r + 1);
  } else {
    r -= 5;
    value = (((0.017337203997 * r + 0.42868294337) * r + 3.0812263860) * r + 6.6579051150) /
            ((0.012258202635 * r + 0.24197894225) * r + 1);
  }
  return q < 0 ? -value : value;
}

}  // namespace elastic_training
