// SPDX-License-Identifier: Apache-2.0
// The weights that a new row begins with: a pure function of the table's seed and the key, so they do not depend on the
// order of keys, on threads, or on which row a key had before it was evicted.
//
// Element 2i is made of the low and element 2i + 1 of the high 32 bits of draw i, which is number i + 1 of SplitMix64 that
// begins at Mix(key) ^ Mix(seed + golden step). u = (the 24 highest bits + 0.5) / 2^24; "uniform" is low + u (high - low),
// "normal" and "truncated_normal" (cut at two standard deviations) are the inverse of the distribution at u.
#ifndef ELASTIC_TRAINING_STORAGE_INITIAL_ROW_H_
#define ELASTIC_TRAINING_STORAGE_INITIAL_ROW_H_

#include <cstddef>
#include <cstdint>

#include <nlohmann/json_fwd.hpp>

namespace elastic_training {

class InitialRow {
 public:
  /// Reads the "initializer" object of a table's JSON; without "kind", rows are uniform in [-0.05, 0.05].
  /// \throws std::invalid_argument that names the field.
  InitialRow(const nlohmann::json& config, uint64_t seed, size_t dim);

  /// Writes the initial weights of a key [dim].
  void Fill(uint64_t key, float* weights) const;

 private:
  enum class Kind { kConstant, kUniform, kNormal };

  Kind kind_;
  size_t dim_;
  uint64_t seed_;
  // Uniform: first value and range. Normal: mean and standard deviation. Constant: the value.
  float offset_, scale_ = 0;
  // Range of the distribution function that is kept; less than all for truncated normals.
  double low_ = 0, high_ = 1;
};

/// Returns the inverse of the standard normal distribution function at p in (0, 1), with 7 digits.
/// Source: M. J. Wichura, Algorithm AS 241 (PPND7), Applied Statistics 37 (1988).
double InverseNormal(double p);

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_STORAGE_INITIAL_ROW_H_
