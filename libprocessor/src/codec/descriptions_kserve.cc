// SPDX-License-Identifier: Apache-2.0
// Metadata, readiness and index of the Open Inference Protocol v2, as messages and as JSON.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "src/base/json_text.h"
#include "src/codec/description_parts.h"
#include "src/codec/kserve_tensors.h"
#include "src/codec/message_builder.h"
#include "src/codec/message_text.h"

namespace processor {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kServerName = "recprocessor";
constexpr const char* kExtensions[] = {"binary_tensor_data", "model_configuration", "model_repository", "statistics"};

/// Fields of the requests and answers.
constexpr uint32_t kFlag = 1;                    // live or ready
constexpr uint32_t kServerFields[] = {1, 2, 3};  // name, version, extensions
constexpr uint32_t kModelName = 1;
constexpr uint32_t kModelVersions = 2;
constexpr uint32_t kModelPlatform = 3;
constexpr uint32_t kModelInputs = 4;
constexpr uint32_t kModelOutputs = 5;
constexpr uint32_t kTensorFields[] = {1, 2, 3};  // name, datatype, shape
constexpr uint32_t kIndexOnlyReady = 2;
constexpr uint32_t kIndexModels = 1;
constexpr uint32_t kIndexFields[] = {1, 2, 3, 4};  // name, version, state, reason

bool IsReady(const HostView& host, const ModelSpecView& spec) {
  const ModelView* model = nullptr;
  const VersionView* version = nullptr;
  return FindLoaded(host, spec, &model, &version).ok() && version->state == VersionPhase::kReady;
}

std::string DatatypeText(const TensorSpec& spec) {
  const std::string_view name = DatatypeName(spec.dtype);
  return name.empty() ? DtypeName(spec.dtype) : std::string(name);
}

/// The dimensions; an open one is -1, and an open rank one open dimension.
std::vector<int64_t> ShapeOf(const TensorSpec& spec) {
  if (spec.shape.unknown_rank()) return {-1};
  std::vector<int64_t> dims;
  for (int i = 0; i < spec.shape.dims(); ++i) dims.push_back(spec.shape.dim_size(i));
  return dims;
}

std::string TensorMessage(const TensorSpec& spec) {
  std::string dims;
  for (const int64_t dim : ShapeOf(spec)) {
    char buffer[10];
    WireWriter writer(buffer);
    writer.Varint(static_cast<uint64_t>(dim));
    dims.append(buffer, writer.position());
  }
  MessageBuilder tensor;
  tensor.Bytes(kTensorFields[0], spec.alias).Bytes(kTensorFields[1], DatatypeText(spec)).Bytes(kTensorFields[2], dims);
  return tensor.bytes();
}

Json TensorsJson(const std::vector<TensorSpec>& specs) {
  Json list = Json::array();
  for (const TensorSpec& spec : specs) {
    list.push_back({{"name", spec.alias}, {"datatype", DatatypeText(spec)}, {"shape", ShapeOf(spec)}});
  }
  return list;
}

/// What metadata tells of a model: the versions that are ready, and one signature.
struct Metadata {
  const ModelView* model = nullptr;
  const Signature* signature = nullptr;
  std::vector<std::string> versions;
};

absl::Status FindMetadata(const HostView& host, const ModelSpecView& spec, Metadata* dst) {
  const VersionView* version = nullptr;
  if (absl::Status status = FindLoaded(host, spec, &dst->model, &version); !status.ok()) return status;
  dst->signature = version->signatures->Find(spec.signature);
  if (dst->signature == nullptr) {
    return absl::NotFoundError(absl::StrCat("model '", dst->model->name, "' version ", version->number,
                                            ": no signature '", Printable(spec.signature), "'"));
  }
  for (const VersionView& other : dst->model->versions) {
    if (other.state == VersionPhase::kReady) dst->versions.push_back(absl::StrCat(other.number));
  }
  return absl::OkStatus();
}

std::string KserveMetadata(const Metadata& metadata) {
  MessageBuilder answer;
  answer.Bytes(kModelName, metadata.model->name);
  for (const std::string& version : metadata.versions) answer.Bytes(kModelVersions, version);
  answer.Bytes(kModelPlatform, kPlatform);
  for (const TensorSpec& spec : metadata.signature->inputs()) answer.Bytes(kModelInputs, TensorMessage(spec));
  for (const TensorSpec& spec : metadata.signature->outputs()) answer.Bytes(kModelOutputs, TensorMessage(spec));
  return answer.bytes();
}

const char* IndexState(VersionPhase state) {
  switch (state) {
    case VersionPhase::kReady:
      return "READY";
    case VersionPhase::kLoading:
    case VersionPhase::kWarming:
      return "LOADING";
    case VersionPhase::kDraining:
      return "UNLOADING";
    case VersionPhase::kFailed:
      break;
  }
  return "UNAVAILABLE";
}

absl::Status Index(std::string_view bytes, const HostView& host, Response* dst) {
  bool only_ready = false;
  const bool ok = ForEachField(bytes, [&only_ready](const WireField& field) {
    if (field.number == kIndexOnlyReady && field.type == WireType::kVarint) {
      only_ready = FirstVarint(field.payload) != 0;
    }
    return true;
  });
  if (!ok) return MalformedQuestion("RepositoryIndex", "kserve");
  MessageBuilder answer;
  for (const ModelView& model : host.models) {
    for (const VersionView& version : model.versions) {
      if (only_ready && version.state != VersionPhase::kReady) continue;
      MessageBuilder entry;
      entry.Bytes(kIndexFields[0], model.name).Bytes(kIndexFields[1], absl::StrCat(version.number));
      entry.Bytes(kIndexFields[2], IndexState(version.state)).Bytes(kIndexFields[3], version.error.message());
      answer.Bytes(kIndexModels, entry.bytes());
    }
  }
  return Answer(answer.bytes(), dst);
}

/// The body may say {"ready": true}, or nothing.
absl::Status IndexJson(std::string_view bytes, const HostView& host, Response* dst) {
  bool only_ready = false;
  if (absl::Status s = ReadIndexBody(bytes, &only_ready); !s.ok()) return s;
  Json list = Json::array();
  for (const ModelView& model : host.models) {
    for (const VersionView& version : model.versions) {
      if (only_ready && version.state != VersionPhase::kReady) continue;
      list.push_back({{"name", model.name},
                      {"version", absl::StrCat(version.number)},
                      {"state", IndexState(version.state)},
                      {"reason", std::string(version.error.message())}});
    }
  }
  return Answer(JsonText(list), dst);
}

absl::Status AnswerFlag(bool flag, Response* dst) {
  MessageBuilder answer;
  answer.Varint(kFlag, flag ? 1 : 0);
  return Answer(answer.bytes(), dst);
}

absl::Status AnswerJson(const Json& json, Response* dst) { return Answer(JsonText(json), dst); }

}  // namespace

absl::Status DescribeKserve(std::string_view method, std::string_view bytes, const ModelSpecView& spec,
                            const HostView& host, Response* dst) {
  if (method == "ServerLive") return AnswerFlag(true, dst);
  if (method == "ServerReady") return AnswerFlag(host.ready, dst);
  if (method == "ModelReady") return AnswerFlag(IsReady(host, spec), dst);
  if (method == "RepositoryIndex") return Index(bytes, host, dst);
  if (method == "ModelConfig" || method == "ModelStatistics") return DescribeTriton(method, spec, host, dst);
  if (method == "ServerMetadata") {
    MessageBuilder answer;
    answer.Bytes(kServerFields[0], kServerName).Bytes(kServerFields[1], PROCESSOR_VERSION);
    for (const char* extension : kExtensions) answer.Bytes(kServerFields[2], extension);
    return Answer(answer.bytes(), dst);
  }
  Metadata metadata;
  if (absl::Status status = FindMetadata(host, spec, &metadata); !status.ok()) return status;
  return Answer(KserveMetadata(metadata), dst);
}

absl::Status DescribeKserveJson(std::string_view method, std::string_view bytes, const ModelSpecView& spec,
                                const HostView& host, Response* dst) {
  if (method == "config" || method == "stats") return DescribeTritonJson(method, spec, host, dst);
  if (method == "index") return IndexJson(bytes, host, dst);
  if (method == "live") return AnswerJson({{"live", true}}, dst);
  if (method == "server_ready") {
    if (!host.ready) return absl::UnavailableError("server: starting or draining, expected a ready one");
    return AnswerJson({{"ready", true}}, dst);
  }
  if (method == "server_metadata") {
    return AnswerJson({{"name", kServerName}, {"version", PROCESSOR_VERSION}, {"extensions", kExtensions}}, dst);
  }
  if (method == "ready") {
    const ModelView* model = nullptr;
    const VersionView* version = nullptr;
    if (absl::Status status = FindLoaded(host, spec, &model, &version); !status.ok()) return status;
    if (version->state == VersionPhase::kReady) return AnswerJson({{"name", model->name}, {"ready", true}}, dst);
    return absl::UnavailableError(absl::StrCat("model '", model->name, "' version ", version->number, ": ",
                                               PhaseName(version->state), ", expected a ready one"));
  }
  Metadata metadata;
  if (absl::Status status = FindMetadata(host, spec, &metadata); !status.ok()) return status;
  return AnswerJson({{"name", metadata.model->name},
                     {"versions", metadata.versions},
                     {"platform", kPlatform},
                     {"inputs", TensorsJson(metadata.signature->inputs())},
                     {"outputs", TensorsJson(metadata.signature->outputs())}},
                    dst);
}

}  // namespace processor
