// SPDX-License-Identifier: Apache-2.0
#include "src/codec/model_spec.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "src/codec/codec.h"
#include "src/codec/kserve_messages.h"
#include "src/codec/message_text.h"
#include "src/codec/tfserving_spec.h"
#include "src/codec/wire.h"

namespace processor {
namespace {

/// All requests of "tfserving" have their ModelSpec here; a MultiInferenceRequest has its tasks, which have theirs here.
constexpr uint32_t kSpec = 1;

/// Merges the ModelSpecs of a message.
bool ReadSpecs(std::string_view message, ModelSpecView* dst) {
  return ForEachField(message, [dst](const WireField& field) {
    return field.number != kSpec || field.type != WireType::kBytes || ReadModelSpec(field.payload, dst);
  });
}

/// The first task's; that the others agree is seen when the request is decoded.
bool ReadFirstTask(std::string_view message, ModelSpecView* dst) {
  bool first = true;
  return ForEachField(message, [&](const WireField& field) {
    if (field.number != kSpec || field.type != WireType::kBytes || !first) return true;
    first = false;
    return ReadSpecs(field.payload, dst);
  });
}

/// Name and version, which are fields 1 and 2 of all requests that have them.
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

absl::Status PeekModel(std::string_view protocol, std::string_view method, std::string_view bytes, ModelSpecView* dst) {
  *dst = ModelSpecView();
  const Method* const found = FindMethod(protocol, method);
  if (found == nullptr) {
    return absl::UnimplementedError(absl::StrCat("method '", Printable(method), "' of protocol '", Printable(protocol),
                                                 "': unknown, expected one that docs/model_host.md lists"));
  }
  bool ok = true;
  if (protocol == "tfserving") ok = found->name == "MultiInference" ? ReadFirstTask(bytes, dst) : ReadSpecs(bytes, dst);
  // Of the requests about the server, field 1 and 2 mean something else, or nothing.
  if (protocol == "kserve" && found->name.substr(0, 5) == "Model") ok = ReadKserve(bytes, dst);
  if (ok) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("request: malformed or truncated bytes, expected a ", found->name,
                                                 " request of protocol '", protocol, "'"));
}

}  // namespace processor
