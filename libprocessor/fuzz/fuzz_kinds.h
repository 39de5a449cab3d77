// SPDX-License-Identifier: Apache-2.0
// What the first byte of an input of fuzz_codec.cc may mean; inputs_codec.cc makes inputs of every kind.
#ifndef PROCESSOR_FUZZ_FUZZ_KINDS_H_
#define PROCESSOR_FUZZ_FUZZ_KINDS_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "oracle.h"

namespace processor::fuzz {

enum class Check : uint8_t {
  kCompare,  // with generated code
  kRun,      // decode, and answer if that worked
  kAsk,      // methods that describe
  kRecord,   // of a warm-up file
};

struct Kind {
  Check check;
  std::string_view protocol, method;
  bool binary = false;  // bytes behind the JSON
};

inline const std::vector<Kind>& Kinds() {
  static const auto* const kinds = new std::vector<Kind>{
      {Check::kCompare, "eas", ""},
      {Check::kCompare, "tfserving", ""},
      {Check::kRecord, "tfserving", ""},
      {Check::kCompare, "kserve", ""},
      {Check::kRun, "tfserving", "Classify"},
      {Check::kRun, "tfserving", "Regress"},
      {Check::kRun, "tfserving", "MultiInference"},
      {Check::kRun, "tfserving_json", "predict"},
      {Check::kRun, "tfserving_json", "classify"},
      {Check::kRun, "tfserving_json", "regress"},
      {Check::kRun, "kserve_json", "infer"},
      {Check::kRun, "kserve_json", "infer", true},
      {Check::kAsk, "", ""},
  };
  return *kinds;
}

/// Where the JSON before binary data ends, as the seeds have it: behind the last brace.
inline size_t HeaderOf(std::string_view bytes) { return bytes.rfind('}') + 1; }

/// A signature for each method.
inline std::unique_ptr<SignatureSet> MakeKindSignatures() {
  return oracle::MakeSignatures({
      {"serving_default",
       {{"x", tensorflow::DT_FLOAT, {}, true},
        {"id", tensorflow::DT_INT64, {-1}},
        {"tag", tensorflow::DT_STRING, {-1}}},
       {{"prob", tensorflow::DT_FLOAT, {}, true}, {"text_bytes", tensorflow::DT_STRING, {}, true}}},
      {"one", {{"x", tensorflow::DT_INT8, {}, true}}, {{"y", tensorflow::DT_BOOL, {}, true}}},
      {"classify",
       {{"inputs", tensorflow::DT_STRING, {-1}}},
       {{"classes", tensorflow::DT_STRING, {-1, -1}}, {"scores", tensorflow::DT_FLOAT, {-1, -1}}},
       "tensorflow/serving/classify"},
      {"regress",
       {{"inputs", tensorflow::DT_STRING, {-1}}},
       {{"outputs", tensorflow::DT_FLOAT, {-1, 1}}},
       "tensorflow/serving/regress"},
  });
}

}  // namespace processor::fuzz

#endif  // PROCESSOR_FUZZ_FUZZ_KINDS_H_
