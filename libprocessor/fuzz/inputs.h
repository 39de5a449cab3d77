// SPDX-License-Identifier: Apache-2.0
// What driver.cc wants to know of a fuzz target.
#ifndef PROCESSOR_FUZZ_INPUTS_H_
#define PROCESSOR_FUZZ_INPUTS_H_

#include <random>
#include <string>

namespace processor::fuzz {

/// Name of the target.
extern const char* const kTarget;

/// A valid input; `number` chooses among the kinds that there are.
std::string RandomInput(int number, std::mt19937_64* random);

/// The same, damaged.
std::string DamagedInput(const std::string& input, std::mt19937_64* random);

}  // namespace processor::fuzz

#endif  // PROCESSOR_FUZZ_INPUTS_H_
