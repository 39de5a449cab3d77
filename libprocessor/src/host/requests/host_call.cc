// SPDX-License-Identifier: Apache-2.0
#include "src/host/requests/host_call.h"

#include "absl/strings/str_cat.h"
#include "src/codec/message_text.h"
#include "src/host/requests/host_stats.h"
#include "src/host/requests/shadow_lane.h"

namespace processor {
namespace {

absl::Status Contradiction(std::string_view what, std::string_view in_bytes, std::string_view beside) {
  return absl::InvalidArgumentError(absl::StrCat("request: ", what, " '", Printable(in_bytes), "' in the bytes and '",
                                                 Printable(beside), "' beside them, expected the same"));
}

}  // namespace

absl::Status SpecOf(const HostCall& call, ModelSpecView* spec) {
  const HostRequest& request = call.request();
  if (absl::Status s = PeekModel(*call.method, request.data, spec); !s.ok()) return s;
  if (!request.model_name.empty()) {
    if (!spec->name.empty() && spec->name != request.model_name) {
      return Contradiction("model", spec->name, request.model_name);
    }
    spec->name = request.model_name;
  }
  if (request.model_version != 0) {
    if (spec->version.has_value() && *spec->version != request.model_version) {
      return Contradiction("version", absl::StrCat(*spec->version), absl::StrCat(request.model_version));
    }
    spec->version = request.model_version;
  }
  if (!request.version_label.empty()) {
    if (!spec->label.empty() && spec->label != request.version_label) {
      return Contradiction("version label", spec->label, request.version_label);
    }
    spec->label = request.version_label;
  }
  return absl::OkStatus();
}

std::optional<std::string> RoutingKeyOf(const HostCall& call, const RoutingRules& rules) {
  const HostRequest& request = call.request();
  if (request.routing_key.has_value()) return std::string(*request.routing_key);
  if (!rules.key_input.has_value()) return std::nullopt;
  std::string key;
  const absl::Status found = PeekInput(*call.method, request.data, *rules.key_input, &key, request.header_length);
  // Decoding will report malformed bytes.
  return found.ok() ? std::optional<std::string>(std::move(key)) : std::nullopt;
}

absl::Status HostCall::Decode(const ModelVersion& version, DecodedRequest* request) {
  RequestOptions options;
  options.header_length = request_.header_length;
  if (absl::Status s = method->codec->Decode(request_.data, version.signatures(), options, request); !s.ok()) return s;
  // The host has applied these. The name stays, because the response repeats it.
  request->model_version.reset();
  request->version_label = {};
  const bool has_rows = !request->feeds.empty() && request->feeds.front().dims() > 0;
  rows = has_rows ? request->feeds.front().dim_size(0) : 1;
  return absl::OkStatus();
}

absl::Status HostCall::Encode(const ModelVersion& version, const DecodedRequest& request,
                              std::vector<tensorflow::Tensor>& outputs) {
  scores = FirstFloat(outputs);
  ResponseContext context;
  context.model_version = version.source().number;
  if (servable != nullptr) context.model_name = servable->texts->model;
  Response response;
  const absl::Status status = method->codec->Encode(request, outputs, context, &response);
  if (status.ok() && servable != nullptr) servable->stats->scores().Add(Floats(scores));
  if (shadows.empty()) scores = tensorflow::Tensor();  // frees its memory
  answer.bytes = std::move(response.body);
  answer.header_length = response.header_length;
  if (status.ok() && servable != nullptr && servable->log != nullptr && servable->log->Samples()) {
    sampled = servable->log->Copy(*method, request_.data, request, servable->number);
  }
  return status;
}

}  // namespace processor
