// SPDX-License-Identifier: Apache-2.0
#include "src/codec/protocols.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/codec/message_text.h"

namespace processor {

const std::vector<Method>& Methods() {
  static const auto* const methods = new std::vector<Method>{
      {"tfserving", "Predict", TfServingCodec()},
      {"tfserving", "Classify", ClassifyCodec()},
      {"tfserving", "Regress", RegressCodec()},
      {"tfserving", "MultiInference", MultiInferenceCodec()},
      {"tfserving", "GetModelMetadata", nullptr},
      {"tfserving", "GetModelStatus", nullptr},
      {"tfserving_json", "predict", PredictJsonCodec()},
      {"tfserving_json", "classify", ClassifyJsonCodec()},
      {"tfserving_json", "regress", RegressJsonCodec()},
      {"tfserving_json", "metadata", nullptr},
      {"tfserving_json", "status", nullptr},
      {"kserve", "ModelInfer", KserveCodec()},
      {"kserve", "ModelMetadata", nullptr},
      {"kserve", "ModelReady", nullptr},
      {"kserve", "ServerMetadata", nullptr},
      {"kserve", "ServerLive", nullptr},
      {"kserve", "ServerReady", nullptr},
      {"kserve", "RepositoryIndex", nullptr},
      {"kserve", "ModelConfig", nullptr},
      {"kserve", "ModelStatistics", nullptr},
      {"kserve_json", "infer", KserveJsonCodec()},
      {"kserve_json", "metadata", nullptr},
      {"kserve_json", "ready", nullptr},
      {"kserve_json", "server_metadata", nullptr},
      {"kserve_json", "live", nullptr},
      {"kserve_json", "server_ready", nullptr},
      {"kserve_json", "index", nullptr},
      {"kserve_json", "config", nullptr},
      {"kserve_json", "stats", nullptr},
      {"eas", "predict", EasCodec()},
  };
  return *methods;
}

const Method* FindMethod(std::string_view protocol, std::string_view method) {
  for (const Method& candidate : Methods()) {
    if (candidate.protocol == protocol && (method.empty() || candidate.name == method)) return &candidate;
  }
  return nullptr;
}

const Codec* FindCodec(std::string_view protocol, std::string_view method) {
  const Method* const found = FindMethod(protocol, method);
  return found == nullptr ? nullptr : found->codec;
}

absl::Status UnknownMethod(std::string_view protocol, std::string_view method) {
  std::vector<std::string_view> names;
  for (const Method& candidate : Methods()) {
    if (candidate.protocol == protocol) names.push_back(candidate.name);
  }
  if (names.empty()) {
    return absl::UnimplementedError(absl::StrCat("protocol '", Printable(protocol), "': unknown, expected one of ",
                                                 absl::StrJoin(Protocols(), ", ")));
  }
  return absl::UnimplementedError(absl::StrCat("protocol '", protocol, "': method '", Printable(method),
                                               "' unknown, expected one of ", absl::StrJoin(names, ", ")));
}

const std::vector<std::string>& Protocols() {
  static const auto* const protocols = [] {
    auto* names = new std::vector<std::string>;
    for (const Method& method : Methods()) {
      if (std::find(names->begin(), names->end(), method.protocol) == names->end())
        names->emplace_back(method.protocol);
    }
    return names;
  }();
  return *protocols;
}

bool IsJson(std::string_view protocol) {
  constexpr std::string_view kSuffix = "_json";
  return protocol.size() > kSuffix.size() && protocol.substr(protocol.size() - kSuffix.size()) == kSuffix;
}

bool AsksForSignature(const Codec* codec, std::string_view bytes) { return codec == EasCodec() && bytes.empty(); }

}  // namespace processor
