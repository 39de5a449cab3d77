// SPDX-License-Identifier: Apache-2.0
// What lies before the text of a plan in an input of fuzz_plan.cc.
#ifndef PROCESSOR_FUZZ_PLAN_INPUT_H_
#define PROCESSOR_FUZZ_PLAN_INPUT_H_

#include <cstdint>
#include <string>
#include <vector>

namespace processor::fuzz {

struct PlanInput {
  bool is_tower = false;
  int64_t rows = 1;
  int outputs = 1;
  std::vector<int64_t> widths;                // of the inputs of a tower; a group has as many features
  std::vector<std::vector<int64_t>> weights;  // their shapes
  std::string text;
};

constexpr size_t kPlanInputs = 3, kPlanWeights = 6, kPlanHead = 3 + kPlanInputs + kPlanWeights;

/// False for fewer bytes than the head has.
inline bool ReadPlanInput(const uint8_t* data, size_t size, PlanInput* input) {
  if (size < kPlanHead) return false;
  input->is_tower = data[0] % 2 == 0;
  input->rows = 1 + data[1] % 7;
  input->outputs = 1 + data[2] % 3;
  const uint8_t* next = data + 3;
  for (size_t i = 0; i < kPlanInputs; ++i) input->widths.push_back(1 + *next++ % 9);
  // A matrix, or with a first half of 0 a vector.
  for (size_t i = 0; i < kPlanWeights; ++i, ++next) {
    const int64_t first = *next / 16, second = 1 + *next % 16;
    input->weights.push_back(first == 0 ? std::vector<int64_t>{second} : std::vector<int64_t>{first, second});
  }
  input->text.assign(reinterpret_cast<const char*>(next), size - kPlanHead);
  return true;
}

}  // namespace processor::fuzz

#endif  // PROCESSOR_FUZZ_PLAN_INPUT_H_
