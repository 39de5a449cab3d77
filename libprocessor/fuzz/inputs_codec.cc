// SPDX-License-Identifier: Apache-2.0
// Requests for fuzz_codec.cc.
#include <cstdlib>
#include <string_view>

#include "differential.h"
#include "inputs.h"
#include "proto/tfserving.pb.h"

namespace processor::fuzz {

const char* const kTarget = "fuzz_codec";

// Of kind 0 "eas", 1 "tfserving", 2 warm-up record, as fuzz_codec.cc tells them apart.
std::string RandomInput(int number, std::mt19937_64* random) {
  const int kind = number % 3;
  const char* const protocol = kind == 0 ? "eas" : "tfserving";
  std::string bytes = oracle::RandomRequest(protocol, random);
  if ((*random)() % 2 == 0) bytes = oracle::Rearranged(protocol, bytes, random);
  if (kind == 2) {
    tensorflow::serving::PredictionLog log;
    if (!log.mutable_predict_log()->mutable_request()->ParseFromString(bytes)) std::abort();
    bytes = log.SerializeAsString();
  }
  return static_cast<char>(kind) + bytes;
}

std::string DamagedInput(const std::string& input, std::mt19937_64* random) {
  return input[0] + oracle::Mutated(std::string_view(input).substr(1), random);
}

}  // namespace processor::fuzz
