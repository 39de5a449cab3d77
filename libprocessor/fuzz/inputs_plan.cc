// SPDX-License-Identifier: Apache-2.0
// Plans for fuzz_plan.cc.
#include <iterator>
#include <sstream>

#include "inputs.h"
#include "plan_input.h"

namespace processor::fuzz {

const char* const kTarget = "fuzz_plan";

namespace {

const char* const kActivations[] = {R"({"kind": "relu"})",    R"({"kind": "leaky_relu", "alpha": 0.25})",
                                    R"({"kind": "sigmoid"})", R"({"kind": "gelu"})",
                                    R"({"kind": "softmax"})", R"({"kind": "swish"})"};

// Layers of the width of the first input, so that all of them fit.
std::string RandomTower(std::mt19937_64* random) {
  const uint64_t width = 1 + (*random)() % 9;
  std::string head = {0, static_cast<char>((*random)() % 7), static_cast<char>((*random)() % 3)};
  for (size_t i = 0; i < kPlanInputs; ++i) head += static_cast<char>(width - 1);
  // Three square matrices, three vectors.
  for (size_t i = 0; i < kPlanWeights; ++i) head += static_cast<char>((i < 3 ? 16 * width : 0) + width - 1);
  std::ostringstream text;
  text << R"({"version": 1, "layers": [)";
  const uint64_t layers = 1 + (*random)() % 6;
  for (uint64_t i = 0; i < layers; ++i) {
    const auto value = [&] {
      const uint64_t number = (*random)() % (kPlanInputs + i);
      std::ostringstream name;
      name << (number < kPlanInputs ? "\"x" : "\"h") << (number < kPlanInputs ? number : number - kPlanInputs) << '"';
      return name.str();
    };
    text << (i == 0 ? "" : ", ");
    switch ((*random)() % 6) {
      case 0:
        text << R"({"op": "affine", "inputs": [)" << value() << R"(], "scale": 3, "shift": 4)";
        break;
      case 1:
        text << R"({"op": "add", "inputs": [)" << value() << ", " << value() << "]";
        break;
      case 2:
        text << R"({"op": "multiply", "inputs": [)" << value() << ", " << value() << "]";
        break;
      case 3:
        text << R"({"op": "layer_norm", "inputs": [)" << value() << R"(], "gamma": 3, "beta": 5, "epsilon": 0.001)";
        break;
      default:
        text << R"({"op": "dense", "inputs": [)" << value() << ", " << value() << R"(], "weights": [0, )"
             << (*random)() % 3 << "]";
        if ((*random)() % 2 == 0) text << R"(, "bias": 4)";
        if ((*random)() % 3 == 0) text << R"(, "transpose": true)";
        if ((*random)() % 3 == 0) text << R"(, "add": [)" << value() << "]";
    }
    if ((*random)() % 2 == 0) text << R"(, "activation": )" << kActivations[(*random)() % std::size(kActivations)];
    text << "}";
  }
  text << R"(], "outputs": [)";
  for (int i = 0; i <= head[2] % 3; ++i) text << (i == 0 ? "" : ", ") << "\"h" << (*random)() % layers << '"';
  text << "]}";
  return head + text.str();
}

std::string RandomGroup(std::mt19937_64* random) {
  std::string head = {1, 0, 1};  // two outputs
  head.resize(kPlanHead, static_cast<char>((*random)() % 9));
  static const char* const kSteps[] = {R"({"op": "fast_hash", "buckets": 1000})",
                                       R"({"op": "strong_hash", "buckets": 17, "key": [1, 2]})",
                                       R"({"op": "legacy_hash", "buckets": 9})",
                                       R"({"op": "to_string"})",
                                       R"({"op": "mod", "by": 40})",
                                       R"({"op": "add", "value": -3})",
                                       R"({"op": "multiply", "value": 7})",
                                       R"({"op": "clip", "low": 0, "high": 39})",
                                       R"({"op": "bucketize", "boundaries": [0.5, 1.5, 9]})"};
  std::ostringstream text;
  text << R"({"version": 1, "outputs": [{"width": 45}, {"width": 1, "initial": [0.5]}], "keys": [)";
  for (int i = 0; i < 2; ++i) {
    text << (i == 0 ? "" : ", ") << R"({"feature": )" << (*random)() % kPlanInputs;
    if ((*random)() % 3 == 0) text << R"(, "ignore": "")";
    if ((*random)() % 3 == 0) text << R"(, "ignore": -1)";
    if ((*random)() % 4 == 0) text << R"(, "layout": "sparse", "indices": 1, "shape": 2)";
    text << R"(, "steps": [)";
    for (uint64_t n = (*random)() % 4, s = 0; s < n; ++s) {
      text << (s == 0 ? "" : ", ") << kSteps[(*random)() % std::size(kSteps)];
    }
    text << "]}";
  }
  text << R"(], "columns": [{"kind": "copy", "feature": 2, "output": 0, "offset": 0, "width": 13},
    {"kind": "lookup", "key": 0, "table": 0, "output": 0, "offset": 13, "combiner": "mean"},
    {"kind": "lookup", "key": 1, "table": 2, "output": 1, "offset": 0, "accumulate": true},
    {"kind": "linear", "feature": 0, "output": 1, "offset": 0, "weights": [[0.25], [0.5]]}]})";
  return head + text.str();
}

}  // namespace

std::string RandomInput(int number, std::mt19937_64* random) {
  return number % 2 == 0 ? RandomTower(random) : RandomGroup(random);
}

std::string DamagedInput(const std::string& input, std::mt19937_64* random) {
  static const char* const kTexts[] = {"-1", "0",     "1",    "99999999999", "1e300", "\"x9\"", "\"h0\"", "[",
                                       "}",  "[[[[[", "null", "\"\"",        "true",  "{}",     "NaN",    ", "};
  std::string damaged = input;
  for (uint64_t n = 1 + (*random)() % 3; n > 0 && !damaged.empty(); --n) {
    const size_t at = (*random)() % damaged.size();
    switch ((*random)() % 5) {
      case 0:
        damaged[at] = static_cast<char>((*random)());
        break;
      case 1:
        damaged.insert(at, kTexts[(*random)() % std::size(kTexts)]);
        break;
      case 2: {
        // A number for a number gets furthest.
        const size_t digit = damaged.find_first_of("0123456789", std::max(at, kPlanHead));
        if (digit != std::string::npos) damaged.replace(digit, 1, kTexts[(*random)() % 7]);
        break;
      }
      case 3:
        damaged.erase(at, 1 + (*random)() % 8);
        break;
      default:
        damaged[at % kPlanHead] = static_cast<char>((*random)());
    }
  }
  return damaged;
}

}  // namespace processor::fuzz
