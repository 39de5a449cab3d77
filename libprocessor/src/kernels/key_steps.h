// SPDX-License-Identifier: Apache-2.0
// Computes the keys of a table (row numbers, 64-bit keys or strings) from the values of a feature.
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

/// The steps of one key. It is constant once it is made; any thread may compute keys with it.
class KeySteps {
 public:
  /// Prepares the steps of a key for the type of its feature. Numbers are widened to 64 bits before the first step.
  /// \return INVALID_ARGUMENT if a step does not accept the type that it would get.
  static absl::Status Make(const PlanKey& key, tensorflow::DataType type, KeySteps* steps);

  /// Notes how many first steps are those of the key before in the plan, for the same values; few are not worth it.
  void ShareWith(const PlanKey& before, const PlanKey& key);
  /// Returns this number.
  size_t shared() const { return shared_; }
  /// Returns the number of steps.
  size_t count() const { return steps_.size(); }

  /// Whether the keys are strings.
  bool gives_strings() const { return gives_strings_; }
  /// Whether the keys are the unchanged strings of the feature.
  bool passes_strings() const { return gives_strings_ && type_ == tensorflow::DT_STRING; }
  /// Returns the bytes from one value of the feature to the next.
  size_t value_size() const { return value_size_; }

  /// Computes the keys of values, for steps that result in numbers.
  /// \param values  [n], as the feature has them.
  /// \param keys    [n]
  /// \param none    [n], set to 1 for each ignored value and 0 for the others, but only if one is ignored; the keys of
  ///                ignored values mean nothing.
  /// \return whether any value is ignored.
  bool Numbers(const void* values, size_t n, int64_t* keys, uint8_t* none) const;

  /// Does the first `end` steps of `Numbers`, at least one if there is any that a feature's type needs.
  /// \return whether any value is ignored, apart from negative numbers.
  bool Start(const void* values, size_t n, size_t end, int64_t* keys, uint8_t* none) const;
  /// Does the steps from `begin` on. `any`: what `Start` returned, here or for the key before.
  /// \return whether any value is ignored.
  bool Finish(size_t begin, size_t n, int64_t* keys, uint8_t* none, bool any) const;

  /// Computes keys for steps that result in strings. Keys that are the strings of the feature are not written.
  bool Strings(const void* values, size_t n, tensorflow::tstring* keys, uint8_t* none) const;

 private:
  struct Step {
    StepKind kind;
    int64_t first = 0;
    int64_t second = 0;
    int64_t third = 1;
    uint64_t key[2] = {0, 0};
    FastMod mod;
    bool is_unsigned = false;  // it takes uint64
    std::vector<float> boundaries;
  };

  absl::Status Add(const PlanStep& planned, bool* text, bool* is_unsigned);
  size_t Load(const void* values, size_t n, int64_t* keys) const;
  void Apply(const Step& step, size_t n, int64_t* keys) const;
  void Run(size_t begin, size_t end, size_t n, int64_t* keys) const;
  bool MarkIgnored(const void* values, const int64_t* keys, size_t n, uint8_t* none) const;

  tensorflow::DataType type_ = tensorflow::DT_INVALID;
  size_t value_size_ = 0;
  size_t shared_ = 0;
  IgnoreKind ignore_ = IgnoreKind::kNothing;
  std::string ignored_string_;
  int64_t ignored_integer_ = 0;
  bool ignore_negative_ = false;
  bool gives_strings_ = false;
  std::vector<Step> steps_;
};

}  // namespace processor

#endif  // PROCESSOR_KERNELS_KEY_STEPS_H_
