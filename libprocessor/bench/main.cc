// SPDX-License-Identifier: Apache-2.0
// The main function of every program of this folder.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <utility>

#include "nlohmann/json.hpp"
#include "program.h"

namespace processor::bench {

Arguments::Arguments(int argc, char** argv, std::map<std::string, std::string> defaults)
    : values_(std::move(defaults)) {
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const auto found = values_.find(name);
    if (found == values_.end()) throw std::invalid_argument(name + ": unknown argument");
    if (++i == argc) throw std::invalid_argument(name + ": no value, expected one");
    found->second = argv[i];
  }
}

double Arguments::Number(const std::string& name) const {
  const std::string& text = values_.at(name);
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value >= 0)) {
    throw std::invalid_argument(name + ": '" + text + "', expected a number that is not negative");
  }
  return value;
}

size_t Arguments::Count(const std::string& name) const {
  const auto count = static_cast<size_t>(Number(name));
  if (count == 0) throw std::invalid_argument(name + ": 0, expected at least 1");
  return count;
}

double Rounded(double value, int digits) {
  const double scale = std::pow(10.0, digits);
  return std::round(value * scale) / scale;
}

}  // namespace processor::bench

int main(int argc, char** argv) {
  using processor::bench::kProgram;
  const std::string name = std::filesystem::path(argv[0]).filename().string();
  try {
    const processor::bench::Report report = kProgram.run(processor::bench::Arguments(argc, argv, kProgram.defaults));
    if (!report.is_null()) std::printf("%s\n", report.dump(1).c_str());
    return 0;
  } catch (const processor::bench::AnswersDiffer& error) {
    std::fprintf(stderr, "%s: the answers differ: %s\n", name.c_str(), error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), error.what());
    return 1;
  }
}
