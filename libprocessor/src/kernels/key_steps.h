// SPDX-License-Identifier: Apache-2.0
// From the values of a feature to the keys of a table: row numbers, 64-bit keys or strings.
#ifndef PROCESSOR_KERNELS_KEY_STEPS_H_
#define PROCESSOR_KERNELS_KEY_STEPS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "src/kernels/embedding_plan.h"
#include "src/kernels/fast_mod.h"
#include "tensorflow/core/framework/types.pb.h"
#include "tensorflow/core/platform/tstring.h"

namespace processor {

class KeySteps {
 public:
  /// Fits the steps of a key to the type of its feature. Numbers are widened to 64 bits before the first step.
  /// \return INVALID_ARGUMENT where a step does not take what it would get.
  static absl::Status Make(const PlanKey& key, tensorflow::DataType type, KeySteps* steps);

  /// Are the keys strings?
  bool gives_strings() const { return gives_strings_; }
  /// Are they the strings of the feature itself?
  bool passes_strings() const { return gives_strings_ && type_ == tensorflow::DT_STRING; }
  /// Bytes from one value of the feature to the next.
  size_t value_size() const { return value_size_; }

  /// Computes the keys of values, for steps that give numbers.
  /// \param values  [n], as the feature has them.
  /// \param keys    [n]
  /// \param none    [n], set to 1 for each value that counts as none and 0 for the others, but only if there is one;
  ///                keys of such values mean nothing.
  /// \return whether there is one.
  bool Numbers(const void* values, size_t n, int64_t* keys, uint8_t* none) const;

  /// The same for steps that give strings. Where they pass, `keys` is not written.
  bool Strings(const void* values, size_t n, tensorflow::tstring* keys, uint8_t* none) const;

 private:
  struct Step {
    StepKind kind;
    int64_t first = 0;
    int64_t second = 0;
    uint64_t key[2] = {0, 0};
    FastMod mod;
    bool is_unsigned = false;  // it takes uint64
    std::vector<float> boundaries;
  };

  absl::Status Add(const PlanStep& planned, bool* text, bool* is_unsigned);
  size_t Load(const void* values, size_t n, int64_t* keys) const;
  void Apply(const Step& step, size_t n, int64_t* keys) const;
  bool MarkIgnored(const void* values, const int64_t* keys, size_t n, uint8_t* none) const;

  tensorflow::DataType type_ = tensorflow::DT_INVALID;
  size_t value_size_ = 0;
  IgnoreKind ignore_ = IgnoreKind::kNothing;
  std::string ignored_string_;
  int64_t ignored_integer_ = 0;
  bool ignore_negative_ = false;
  bool gives_strings_ = false;
  std::vector<Step> steps_;
};

}  // namespace processor

#endif  // PROCESSOR_KERNELS_KEY_STEPS_H_
