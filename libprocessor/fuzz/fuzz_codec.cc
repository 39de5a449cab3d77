// SPDX-License-Identifier: Apache-2.0
// Any bytes through the codecs: nothing may crash, and generated protobuf code must agree with every verdict and value.
//
// The first byte chooses what the rest is: a request of "eas", one of "tfserving", or a record of a warm-up file.
// Built with libFuzzer where clang is (`make fuzz`), else with driver.cc.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "differential.h"
#include "src/codec/codec.h"
#include "src/codec/prediction_log.h"

namespace {

void Check(std::string_view protocol, std::string_view bytes) {
  static const auto* const eas = processor::oracle::MakeWideSignatures("eas").release();
  static const auto* const tfserving = processor::oracle::MakeWideSignatures("tfserving").release();
  const std::string difference = processor::oracle::Compare(protocol, bytes, protocol == "eas" ? *eas : *tfserving);
  if (difference.empty()) return;
  std::fprintf(stderr, "fuzz_codec: %s: %s\n", std::string(protocol).c_str(), difference.c_str());
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 3) {
    case 0:
      Check("eas", bytes);
      break;
    case 1:
      Check("tfserving", bytes);
      break;
    default: {
      const absl::StatusOr<std::string_view> request = processor::PredictRequestOf(bytes);
      if (request.ok()) Check("tfserving", *request);
    }
  }
  return 0;
}
