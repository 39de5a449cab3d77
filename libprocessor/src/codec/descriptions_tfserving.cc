// SPDX-License-Identifier: Apache-2.0
// GetModelMetadata and GetModelStatus of TensorFlow Serving, as messages and as JSON.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "google/protobuf/json/json.h"
#include "nlohmann/json.hpp"
#include "src/base/json_text.h"
#include "src/codec/description_parts.h"
#include "src/codec/message_builder.h"
#include "src/codec/message_text.h"
#include "src/codec/tfserving_spec.h"
#include "tensorflow/core/protobuf/meta_graph.pb.h"

namespace processor {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kSignatureDef = "signature_def";
constexpr std::string_view kSignatureDefMapType = "type.googleapis.com/tensorflow.serving.SignatureDefMap";

/// Fields of the requests and answers.
constexpr uint32_t kMetadataField = 2;   // of GetModelMetadataRequest
constexpr uint32_t kMetadataSpec = 1;    // of GetModelMetadataResponse
constexpr uint32_t kAnswerMetadata = 2;  // map<string, google.protobuf.Any>
constexpr uint32_t kMapKey = 1;
constexpr uint32_t kMapValue = 2;
constexpr uint32_t kAnyType = 1;
constexpr uint32_t kAnyValue = 2;
constexpr uint32_t kSignatures = 1;       // of SignatureDefMap
constexpr uint32_t kVersionStatuses = 1;  // of GetModelStatusResponse
constexpr uint32_t kStatusVersion = 1;    // of ModelVersionStatus
constexpr uint32_t kStatusState = 2;
constexpr uint32_t kStatusStatus = 3;
constexpr uint32_t kErrorCode = 1;  // of StatusProto
constexpr uint32_t kErrorMessage = 2;

/// ModelVersionStatus.State
struct ServingState {
  int number;
  const char* name;
};

ServingState StateOf(VersionPhase state) {
  switch (state) {
    case VersionPhase::kLoading:
    case VersionPhase::kWarming:
      return {20, "LOADING"};
    case VersionPhase::kReady:
      return {30, "AVAILABLE"};
    case VersionPhase::kDraining:
      return {40, "UNLOADING"};
    case VersionPhase::kFailed:
      break;
  }
  return {50, "END"};
}

using TensorInfos = google::protobuf::Map<std::string, tensorflow::TensorInfo>;

void AddInfos(const std::vector<TensorSpec>& specs, TensorInfos* dst) {
  for (const TensorSpec& spec : specs) {
    tensorflow::TensorInfo& info = (*dst)[spec.alias];
    info.set_name(spec.tensor_name);
    info.set_dtype(spec.dtype);
    spec.shape.AsProto(info.mutable_tensor_shape());
  }
}

tensorflow::TensorProto DefaultMessage(const TensorSpec& input) {
  tensorflow::TensorProto message;
  // In typed fields, which clients in any language read.
  input.default_value->AsProtoField(&message);
  return message;
}

std::string TfservingMetadata(const ModelView& model, const VersionView& version) {
  MessageBuilder signatures;
  for (const auto& signature : version.signatures->all()) {
    tensorflow::SignatureDef def;
    def.set_method_name(signature->method_name());
    AddInfos(signature->inputs(), def.mutable_inputs());
    AddInfos(signature->outputs(), def.mutable_outputs());
    for (const TensorSpec& input : signature->inputs()) {
      if (input.default_value) (*def.mutable_defaults())[input.alias] = DefaultMessage(input);
    }
    MessageBuilder entry;
    entry.Bytes(kMapKey, signature->name()).Bytes(kMapValue, def.SerializeAsString(), true);
    signatures.Bytes(kSignatures, entry.bytes());
  }
  MessageBuilder any, entry, number, spec, answer;
  any.Bytes(kAnyType, kSignatureDefMapType).Bytes(kAnyValue, signatures.bytes());
  entry.Bytes(kMapKey, kSignatureDef).Bytes(kMapValue, any.bytes());
  number.Varint(spec_fields::kWrappedValue, static_cast<uint64_t>(version.number));
  spec.Bytes(spec_fields::kName, model.name).Bytes(spec_fields::kVersion, number.bytes(), true);
  answer.Bytes(kMetadataSpec, spec.bytes()).Bytes(kAnswerMetadata, entry.bytes());
  return answer.bytes();
}

/// The fields that are asked for must be the one that there is.
absl::Status CheckMetadataFields(std::string_view bytes) {
  std::string_view unknown;
  bool any = false;
  const bool ok = ForEachField(bytes, [&](const WireField& field) {
    if (field.number != kMetadataField || field.type != WireType::kBytes) return true;
    any = true;
    if (field.payload != kSignatureDef) unknown = field.payload;
    return true;
  });
  if (!ok) return MalformedQuestion("GetModelMetadata", "tfserving");
  if (!any) return absl::InvalidArgumentError("metadata_field: none, expected 'signature_def'");
  if (unknown.data() == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("metadata_field: '", Printable(unknown), "', expected 'signature_def'"));
}

/// The versions that a question of status is about: one that is named, else all.
absl::Status FindVersions(const HostView& host, const ModelSpecView& spec, std::vector<const VersionView*>* dst) {
  const ModelView* model = nullptr;
  if (absl::Status status = FindModel(host, spec, &model); !status.ok()) return status;
  if (spec.version || !spec.label.empty()) return FindVersion(*model, spec, &dst->emplace_back());
  for (const VersionView& version : model->versions) dst->push_back(&version);
  // The largest first, as TensorFlow Serving lists them.
  std::sort(dst->begin(), dst->end(), [](const auto* a, const auto* b) { return a->number > b->number; });
  return absl::OkStatus();
}

std::string StatusAnswer(const std::vector<const VersionView*>& versions) {
  MessageBuilder answer;
  for (const VersionView* version : versions) {
    MessageBuilder error, status;
    error.Varint(kErrorCode, static_cast<uint64_t>(version->error.raw_code()));
    error.Bytes(kErrorMessage, version->error.message());
    status.Varint(kStatusVersion, static_cast<uint64_t>(version->number));
    status.Varint(kStatusState, static_cast<uint64_t>(StateOf(version->state).number));
    status.Bytes(kStatusStatus, error.bytes(), true);
    answer.Bytes(kVersionStatuses, status.bytes());
  }
  return answer.bytes();
}

Json StatusJson(const std::vector<const VersionView*>& versions) {
  Json list = Json::array();
  for (const VersionView* version : versions) {
    list.push_back({{"version", absl::StrCat(version->number)},
                    {"state", StateOf(version->state).name},
                    {"status",
                     {{"error_code", absl::StatusCodeToString(version->error.code())},
                      {"error_message", std::string(version->error.message())}}}});
  }
  return {{"model_version_status", std::move(list)}};
}

Json InfosJson(const std::vector<TensorSpec>& specs) {
  Json infos = Json::object();
  for (const TensorSpec& spec : specs) {
    Json dims = Json::array();
    for (int i = 0; i < spec.shape.dims(); ++i) {
      dims.push_back({{"size", absl::StrCat(spec.shape.dim_size(i))}, {"name", ""}});
    }
    infos[spec.alias] = {{"dtype", DtypeName(spec.dtype)},
                         {"tensor_shape", {{"dim", std::move(dims)}, {"unknown_rank", spec.shape.unknown_rank()}}},
                         {"name", spec.tensor_name}};
  }
  return infos;
}

/// As protobuf's own JSON has it.
Json DefaultsJson(const Signature& signature) {
  Json defaults = Json::object();
  for (const TensorSpec& input : signature.inputs()) {
    if (!input.default_value) continue;
    std::string text;
    google::protobuf::json::PrintOptions options;
    options.preserve_proto_field_names = true;
    if (google::protobuf::json::MessageToJsonString(DefaultMessage(input), &text, options).ok()) {
      defaults[input.alias] = Json::parse(text);
    }
  }
  return defaults;
}

Json MetadataJson(const ModelView& model, const VersionView& version) {
  Json signatures = Json::object();
  for (const auto& signature : version.signatures->all()) {
    signatures[signature->name()] = {{"inputs", InfosJson(signature->inputs())},
                                     {"outputs", InfosJson(signature->outputs())},
                                     {"method_name", signature->method_name()},
                                     {"defaults", DefaultsJson(*signature)}};
  }
  return {{"model_spec", {{"name", model.name}, {"signature_name", ""}, {"version", absl::StrCat(version.number)}}},
          {"metadata", {{kSignatureDef, {{kSignatureDef, std::move(signatures)}}}}}};
}

}  // namespace

absl::Status DescribeTfServing(std::string_view method, std::string_view bytes, const ModelSpecView& spec,
                               const HostView& host, Response* dst) {
  if (method == "GetModelStatus") {
    std::vector<const VersionView*> versions;
    if (absl::Status status = FindVersions(host, spec, &versions); !status.ok()) return status;
    return Answer(StatusAnswer(versions), dst);
  }
  if (absl::Status status = CheckMetadataFields(bytes); !status.ok()) return status;
  const ModelView* model = nullptr;
  const VersionView* version = nullptr;
  if (absl::Status status = FindLoaded(host, spec, &model, &version); !status.ok()) return status;
  return Answer(TfservingMetadata(*model, *version), dst);
}

absl::Status DescribeTfServingJson(std::string_view method, const ModelSpecView& spec, const HostView& host,
                                   Response* dst) {
  if (method == "status") {
    std::vector<const VersionView*> versions;
    if (absl::Status status = FindVersions(host, spec, &versions); !status.ok()) return status;
    return Answer(JsonText(StatusJson(versions)), dst);
  }
  const ModelView* model = nullptr;
  const VersionView* version = nullptr;
  if (absl::Status status = FindLoaded(host, spec, &model, &version); !status.ok()) return status;
  return Answer(JsonText(MetadataJson(*model, *version)), dst);
}

}  // namespace processor
