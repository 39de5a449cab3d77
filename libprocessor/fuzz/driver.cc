// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target without libFuzzer, and makes the corpus that either starts from.
//
//   fuzz_*_driver --write-seeds DIR     write the seed corpus: valid inputs, as files
//   fuzz_*_driver FILE...               run files, such as one that a fuzzer has left
//   fuzz_*_driver --seconds N [SEED]    run random inputs and damaged ones; without coverage to guide it
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "inputs.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

constexpr int kSeeds = 300;

void Run(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

bool WriteSeeds(const std::string& folder) {
  std::mt19937_64 random(1);
  for (int i = 0; i < kSeeds; ++i) {
    const std::string path = folder + "/seed-" + std::to_string(i);
    std::ofstream file(path, std::ios::binary);
    file << processor::fuzz::RandomInput(i, &random);
    if (!file.flush()) {
      std::fprintf(stderr, "%s: cannot be written\n", path.c_str());
      return false;
    }
  }
  return true;
}

void RunRandom(double seconds, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  int rounds = 0;
  while (std::chrono::steady_clock::now() < end) {
    const std::string input = processor::fuzz::RandomInput(rounds, &random);
    Run(input);
    for (int i = 0; i < 20; ++i) Run(processor::fuzz::DamagedInput(input, &random));
    ++rounds;
  }
  std::printf("%s: %d inputs, all answered and agreed on (seed %llu)\n", processor::fuzz::kTarget, 21 * rounds,
              static_cast<unsigned long long>(seed));
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() == 2 && arguments[0] == "--write-seeds") return WriteSeeds(arguments[1]) ? 0 : 1;
  if (arguments.size() >= 2 && arguments[0] == "--seconds") {
    RunRandom(std::atof(arguments[1].c_str()),
              arguments.size() > 2 ? std::strtoull(arguments[2].c_str(), nullptr, 10) : 1);
    return 0;
  }
  if (arguments.empty() || arguments[0].rfind("--", 0) == 0) {
    std::fprintf(stderr, "usage: %s --write-seeds DIR | --seconds N [SEED] | FILE...\n", argv[0]);
    return 2;
  }
  for (const std::string& path : arguments) {
    std::ifstream file(path, std::ios::binary);
    if (!file) {
      std::fprintf(stderr, "%s: cannot be read\n", path.c_str());
      return 1;
    }
    Run(std::string(std::istreambuf_iterator<char>(file), {}));
  }
  return 0;
}
