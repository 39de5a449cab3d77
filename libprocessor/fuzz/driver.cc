// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target without libFuzzer, and makes the corpus that either starts from.
//
//   fuzz_codec_driver --write-seeds DIR     write the seed corpus: valid requests, as files
//   fuzz_codec_driver FILE...               run files, such as one that a fuzzer has left
//   fuzz_codec_driver --seconds N [SEED]    run random requests and damaged ones; without coverage to guide it
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "differential.h"
#include "proto/tfserving.pb.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

constexpr int kSeedsOfEach = 100;

void Run(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

/// An input of kind 0 "eas", 1 "tfserving", 2 warm-up record, as fuzz_codec.cc tells them apart.
std::string RandomInput(int kind, std::mt19937_64* random) {
  const char* const protocol = kind == 0 ? "eas" : "tfserving";
  std::string bytes = processor::oracle::RandomRequest(protocol, random);
  if ((*random)() % 2 == 0) bytes = processor::oracle::Rearranged(protocol, bytes, random);
  if (kind == 2) {
    tensorflow::serving::PredictionLog log;
    if (!log.mutable_predict_log()->mutable_request()->ParseFromString(bytes)) std::abort();
    bytes = log.SerializeAsString();
  }
  return static_cast<char>(kind) + bytes;
}

bool WriteSeeds(const std::string& folder) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 3 * kSeedsOfEach; ++i) {
    const std::string path = folder + "/seed-" + std::to_string(i);
    std::ofstream file(path, std::ios::binary);
    file << RandomInput(i % 3, &random);
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
  int64_t count = 0;
  while (std::chrono::steady_clock::now() < end) {
    const std::string input = RandomInput(static_cast<int>(random() % 3), &random);
    Run(input);
    for (int i = 0; i < 20; ++i) Run(input[0] + processor::oracle::Mutated(std::string_view(input).substr(1), &random));
    count += 21;
  }
  std::printf("fuzz_codec: %lld inputs, all answered and agreed on (seed %llu)\n", static_cast<long long>(count),
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
