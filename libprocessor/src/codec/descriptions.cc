// SPDX-License-Identifier: Apache-2.0
#include "src/codec/descriptions.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "src/codec/description_parts.h"
#include "src/codec/message_text.h"
#include "src/codec/predict_codec.h"

namespace processor {

std::string_view PhaseName(VersionPhase state) {
  switch (state) {
    case VersionPhase::kLoading:
      return "loading";
    case VersionPhase::kWarming:
      return "warming";
    case VersionPhase::kReady:
      return "ready";
    case VersionPhase::kDraining:
      return "draining";
    case VersionPhase::kFailed:
      break;
  }
  return "failed";
}

absl::Status FindModel(const HostView& host, const ModelSpecView& spec, const ModelView** dst) {
  for (const ModelView& model : host.models) {
    if (model.name != spec.name) continue;
    *dst = &model;
    return absl::OkStatus();
  }
  if (spec.name.empty()) return absl::InvalidArgumentError("model: no name, expected one");
  return absl::NotFoundError(absl::StrCat("model '", Printable(spec.name), "': not served"));
}

absl::Status FindVersion(const ModelView& model, const ModelSpecView& spec, const VersionView** dst) {
  int64_t wanted = spec.version.value_or(model.baseline);
  if (!spec.label.empty()) {
    bool known = false;
    for (const auto& [label, number] : model.labels) {
      if (label != spec.label) continue;
      known = true;
      wanted = number;
    }
    if (!known) {
      return absl::InvalidArgumentError(
          absl::StrCat("model '", model.name, "': no version is labeled '", Printable(spec.label), "'"));
    }
  }
  for (const VersionView& version : model.versions) {
    if (version.number != wanted) continue;
    *dst = &version;
    return absl::OkStatus();
  }
  if (!spec.version && spec.label.empty()) {
    return absl::NotFoundError(absl::StrCat("model '", model.name, "': no version is served"));
  }
  return absl::NotFoundError(absl::StrCat("model '", model.name, "' version ", wanted, ": not served"));
}

absl::Status FindLoaded(const HostView& host, const ModelSpecView& spec, const ModelView** model,
                        const VersionView** version) {
  if (absl::Status status = FindModel(host, spec, model); !status.ok()) return status;
  if (absl::Status status = FindVersion(**model, spec, version); !status.ok()) return status;
  if ((*version)->signatures != nullptr) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("model '", (*model)->name, "' version ", (*version)->number, ": ",
                                             PhaseName((*version)->state), ", expected a loaded one"));
}

absl::Status MalformedQuestion(std::string_view method, std::string_view protocol) {
  return absl::InvalidArgumentError(absl::StrCat("request: malformed or truncated bytes, expected a ", method,
                                                 " request of protocol '", protocol, "'"));
}

absl::Status Answer(std::string_view text, Response* dst) {
  if (absl::Status status = MakeRoom(text.size(), &dst->body); !status.ok()) return status;
  if (!text.empty()) std::memcpy(dst->body.data(), text.data(), text.size());
  return absl::OkStatus();
}

absl::Status Describe(const Method& method, std::string_view bytes, const ModelSpecView& model, const HostView& host,
                      Response* dst) {
  if (method.protocol == "tfserving") return DescribeTfServing(method.name, bytes, model, host, dst);
  if (method.protocol == "tfserving_json") return DescribeTfServingJson(method.name, model, host, dst);
  if (method.protocol == "kserve") return DescribeKserve(method.name, bytes, model, host, dst);
  return DescribeKserveJson(method.name, bytes, model, host, dst);
}

}  // namespace processor
