// SPDX-License-Identifier: Apache-2.0
// Any bytes through the codecs: nothing may crash. Where there are messages, generated protobuf code must agree with
// every verdict and value; what JSON and tf.Example codecs accept, they must be able to answer, peek at and log.
//
// The first byte chooses what the rest is: a request of a protocol and method (fuzz_kinds.h), or a record of a warm-up
// file. Built with libFuzzer where clang is (`make fuzz`), else with driver.cc.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "differential.h"
#include "fuzz_kinds.h"
#include "src/codec/descriptions.h"
#include "src/codec/model_spec.h"
#include "src/codec/prediction_log.h"
#include "src/codec/protocols.h"

namespace {

using processor::fuzz::Kind;

[[noreturn]] void Fail(std::string_view protocol, const std::string& what) {
  std::fprintf(stderr, "fuzz_codec: %s: %s\n", std::string(protocol).c_str(), what.c_str());
  std::abort();
}

/// Compares with generated code.
void Compare(std::string_view protocol, std::string_view bytes) {
  static const auto* const eas = processor::oracle::MakeWideSignatures("eas").release();
  static const auto* const tfserving = processor::oracle::MakeWideSignatures("tfserving").release();
  static const auto* const kserve = processor::oracle::MakeWideSignatures("kserve").release();
  const auto& signatures = protocol == "eas" ? *eas : protocol == "kserve" ? *kserve : *tfserving;
  const std::string difference = processor::oracle::Compare(protocol, bytes, signatures);
  if (!difference.empty()) Fail(protocol, difference);
}

/// Outputs of the right dtypes for a request: as many rows as it has, two columns.
std::vector<tensorflow::Tensor> MakeOutputs(const processor::DecodedRequest& request) {
  std::vector<tensorflow::Tensor> outputs;
  const auto add = [&outputs](const processor::DecodedRequest& run) {
    int64_t rows = run.feeds.empty() || run.feeds[0].dims() == 0 ? 1 : run.feeds[0].dim_size(0);
    rows = std::min<int64_t>(rows, 1000);
    for (const int fetch : run.fetches) {
      const bool column = run.signature->outputs()[fetch].alias == "outputs";
      outputs.push_back(processor::oracle::RandomTensor(run.signature->outputs()[fetch].dtype,
                                                        tensorflow::TensorShape({rows, column ? 1 : 2}), 5));
    }
  };
  add(request);
  for (const auto& next : request.next) add(next);
  return outputs;
}

/// Decodes, and answers what was accepted.
void Run(const Kind& kind, std::string_view bytes) {
  static const auto* const signatures = processor::fuzz::MakeKindSignatures().release();
  const auto copy = std::make_unique<char[]>(bytes.size());
  std::copy(bytes.begin(), bytes.end(), copy.get());
  const std::string_view exact(copy.get(), bytes.size());
  processor::RequestOptions options;
  if (kind.binary) options.header_length = processor::fuzz::HeaderOf(bytes);
  processor::DecodedRequest request;
  const processor::Method& method = *processor::FindMethod(kind.protocol, kind.method);
  const processor::Codec* const codec = method.codec;
  const absl::Status status = codec->Decode(exact, *signatures, options, &request);
  if (!status.ok() && status.message().empty()) Fail(kind.protocol, "an error without words");
  std::string key;
  processor::PeekInput(method, exact, "x", &key, options.header_length).IgnoreError();
  processor::ModelSpecView spec;
  processor::PeekModel(method, exact, &spec).IgnoreError();
  if (!status.ok()) return;
  for (size_t i = 0; i < request.feeds.size(); ++i) {
    if (request.feeds[i].dtype() != request.signature->inputs()[i].dtype)
      Fail(kind.protocol, "a feed of another dtype");
  }
  processor::Response response;
  const std::vector<tensorflow::Tensor> outputs = MakeOutputs(request);
  const absl::Status encoded = codec->Encode(request, outputs, {7, "m"}, &response);
  if (absl::IsInternal(encoded) || absl::IsUnknown(encoded)) Fail(kind.protocol, encoded.ToString());
  processor::Buffer log;
  processor::EncodePredictRequest(request, "m", &log).IgnoreError();
}

/// Questions about the host.
void Ask(std::string_view bytes) {
  static const auto* const signatures = processor::fuzz::MakeKindSignatures().release();
  processor::HostView host;
  host.ready = true;
  host.models = {{"m", {{1, processor::VersionPhase::kReady, absl::OkStatus(), signatures}}, 1, {{"stable", 1}}}};
  for (const processor::Method& method : processor::Methods()) {
    if (method.codec != nullptr) continue;
    processor::ModelSpecView spec;
    if (!processor::PeekModel(method, bytes, &spec).ok()) continue;
    processor::Response response;
    processor::Describe(method, bytes, spec, host, &response).IgnoreError();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Kind& kind = processor::fuzz::Kinds()[data[0] % processor::fuzz::Kinds().size()];
  switch (kind.check) {
    case processor::fuzz::Check::kCompare:
      Compare(kind.protocol, bytes);
      break;
    case processor::fuzz::Check::kRun:
      Run(kind, bytes);
      break;
    case processor::fuzz::Check::kAsk:
      Ask(bytes);
      break;
    case processor::fuzz::Check::kRecord: {
      const absl::StatusOr<std::string_view> request = processor::PredictRequestOf(bytes);
      if (request.ok()) Compare("tfserving", *request);
    }
  }
  return 0;
}
