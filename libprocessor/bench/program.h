// SPDX-License-Identifier: Apache-2.0
// What the programs of this folder share: options, the report and the end. main.cc runs the one that it is linked with.
#ifndef PROCESSOR_BENCH_PROGRAM_H_
#define PROCESSOR_BENCH_PROGRAM_H_

#include <map>
#include <stdexcept>
#include <string>

#include "nlohmann/json_fwd.hpp"

namespace processor::bench {

/// What a program prints when it has measured.
using Report = nlohmann::ordered_json;

/// The options of a program by name ("--rounds"), each with a value.
class Arguments {
 public:
  /// Reads the command line; `defaults` lists every option, with the value that it has if it is not given.
  /// Throws std::invalid_argument for an option that is not in the list or that lacks its value.
  Arguments(int argc, char** argv, std::map<std::string, std::string> defaults);

  const std::string& Text(const std::string& name) const { return values_.at(name); }

  /// Throws std::invalid_argument if the value is no number, or negative.
  double Number(const std::string& name) const;

  /// Throws std::invalid_argument if the value is no number of at least 1. A fraction is cut off.
  size_t Count(const std::string& name) const;

 private:
  std::map<std::string, std::string> values_;
};

/// Two engines answer differently, which has an exit status of its own: 2. Any other exception ends a program with 1.
class AnswersDiffer : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A program. Each defines one.
struct Program {
  std::map<std::string, std::string> defaults;
  /// Measures. Returns the report, or null if it has printed one itself.
  Report (*run)(const Arguments&);
};
extern const Program kProgram;

/// Rounds a number as a report shows it, to `digits` digits after the point.
double Rounded(double value, int digits);

}  // namespace processor::bench

#endif  // PROCESSOR_BENCH_PROGRAM_H_
