// SPDX-License-Identifier: Apache-2.0
// Command lines of the benchmarks: "--name value" and "--flag", nothing more.
#ifndef PROCESSOR_BENCH_ARGUMENTS_H_
#define PROCESSOR_BENCH_ARGUMENTS_H_

#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>

namespace processor::bench {

class Arguments {
 public:
  /// Takes the command line; `defaults` lists every name that is known, with the value it has if it is not given.
  /// Throws std::invalid_argument for a name that is not in it or that lacks its value.
  Arguments(int argc, char** argv, std::map<std::string, std::string> defaults) : values_(std::move(defaults)) {
    for (int i = 1; i < argc; ++i) {
      const std::string name = argv[i];
      const auto found = values_.find(name);
      if (found == values_.end()) throw std::invalid_argument(name + ": unknown argument");
      if (++i == argc) throw std::invalid_argument(name + ": no value, expected one");
      found->second = argv[i];
    }
  }

  const std::string& Text(const std::string& name) const { return values_.at(name); }

  /// Throws std::invalid_argument if the value is no number, or negative.
  double Number(const std::string& name) const {
    const std::string& text = values_.at(name);
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != '\0' || !(value >= 0)) {
      throw std::invalid_argument(name + ": '" + text + "', expected a number that is not negative");
    }
    return value;
  }

 private:
  std::map<std::string, std::string> values_;
};

}  // namespace processor::bench

#endif  // PROCESSOR_BENCH_ARGUMENTS_H_
