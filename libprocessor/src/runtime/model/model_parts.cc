// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/model/model_parts.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace processor {

ModelParts::ModelParts(ModelConfig given, std::string base_dir, std::shared_ptr<LoadProgress> progress)
    : config(std::move(given)),
      gate("model", "one that is loaded"),
      timeline(config.timeline),
      slots(config),
      versions(config, std::move(base_dir), slots, std::move(progress)) {}

void ModelParts::RecordRefusal(const absl::Status& status, int64_t start_ns) noexcept {
  RequestTiming timing;
  timing.queue_ns = timing.total_ns = NowNs() - start_ns;
  refused.Record(status.code(), timing);
}

absl::Status ModelParts::CheckNames(const ModelVersion& version, const DecodedRequest& request) const {
  if (!request.model_name.empty() && config.model_name.has_value() && request.model_name != *config.model_name) {
    return absl::NotFoundError(
        absl::StrCat("model '", request.model_name, "': not loaded, expected '", *config.model_name, "'"));
  }
  if (!request.version_label.empty()) {
    return absl::NotFoundError(
        absl::StrCat("version label '", request.version_label, "': a single model has no labels"));
  }
  const auto& number = version.source().number;
  if (request.model_version.has_value() && request.model_version != number) {
    return absl::NotFoundError(absl::StrCat("model version ", *request.model_version, ": not loaded, expected ",
                                            number.has_value() ? absl::StrCat(*number) : "a request without version"));
  }
  return absl::OkStatus();
}

}  // namespace processor
