// SPDX-License-Identifier: Apache-2.0
#include "src/codec/model_spec.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "src/codec/kserve_messages.h"
#include "src/codec/tfserving_spec.h"
#include "src/codec/wire.h"

namespace processor {
namespace {

/// The field of the ModelSpec in all requests of "tfserving", and of the tasks in a MultiInferenceRequest, whose own
/// ModelSpec is in the same field of a task.
constexpr uint32_t kSpec = 1;

/// Merges the ModelSpecs of a message.
bool ReadSpecs(std::string_view message, ModelSpecView* dst) {
  return ForEachField(message, [dst](const WireField& field) {
    return field.number != kSpec || field.type != WireType::kBytes || ReadModelSpec(field.payload, dst);
  });
}

/// Reads the ModelSpec of the first task. Decoding checks that the others agree.
bool ReadFirstTask(std::string_view message, ModelSpecView* dst) {
  bool first = true;
  return ForEachField(message, [&](const WireField& field) {
    if (field.number != kSpec || field.type != WireType::kBytes || !first) return true;
    first = false;
    return ReadSpecs(field.payload, dst);
  });
}

/// Reads name and version, which are fields 1 and 2 of all requests that have them.
bool ReadKserve(std::string_view message, ModelSpecView* dst) {
  std::string_view version;
  const bool ok = ForEachField(message, [&](const WireField& field) {
    if (field.type != WireType::kBytes) return true;
    if (field.number == InferRequestFields::kModelName) dst->name = field.payload;
    if (field.number == InferRequestFields::kModelVersion) version = field.payload;
    return true;
  });
  ReadVersionText(version, dst);
  return ok;
}

}  // namespace

void ReadVersionText(std::string_view text, ModelSpecView* dst) {
  dst->version.reset();
  dst->label = {};
  int64_t number;
  if (absl::SimpleAtoi(text, &number)) {
    dst->version = number;
  } else {
    dst->label = text;
  }
}

absl::Status PeekModel(const Method& method, std::string_view bytes, ModelSpecView* dst) {
  *dst = ModelSpecView();
  bool ok = true;
  if (method.protocol == "tfserving") {
    ok = method.name == "MultiInference" ? ReadFirstTask(bytes, dst) : ReadSpecs(bytes, dst);
  } else if (method.protocol == "kserve" && method.name.substr(0, 5) == "Model") {
    // In requests about the server, fields 1 and 2 have another meaning or none.
    ok = ReadKserve(bytes, dst);
  }
  if (ok) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("request: malformed or truncated bytes, expected a ", method.name,
                                                 " request of protocol '", method.protocol, "'"));
}

}  // namespace processor
