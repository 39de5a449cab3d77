// SPDX-License-Identifier: Apache-2.0
// State that batched and unbatched requests of a model share. The model owns it, and it outlives every request.
#ifndef PROCESSOR_RUNTIME_MODEL_MODEL_PARTS_H_
#define PROCESSOR_RUNTIME_MODEL_MODEL_PARTS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "src/codec/codec.h"
#include "src/runtime/config/model_config.h"
#include "src/runtime/model/model_versions.h"
#include "src/runtime/requests/outside_calls.h"
#include "src/runtime/requests/request_gate.h"
#include "src/runtime/requests/request_watch.h"
#include "src/runtime/session/session_slots.h"
#include "src/runtime/stats/stats.h"
#include "src/runtime/version/timeline.h"

namespace processor {

struct ModelParts {
  ModelParts(ModelConfig given, std::string base_dir, std::shared_ptr<LoadProgress> progress);

  /// Counts a request that no session ran.
  void RecordRefusal(const absl::Status& status, int64_t start_ns) noexcept;
  /// \return NOT_FOUND if the request names another model or version, or a label.
  absl::Status CheckNames(const ModelVersion& version, const DecodedRequest& request) const;

  const ModelConfig config;
  RequestGate gate;
  const std::shared_ptr<OutsideCalls> outside_calls = std::make_shared<OutsideCalls>();
  RequestWatch watch;
  Timeline timeline;
  SessionStats refused;  // of requests that no session ran
  SessionSlots slots;
  ModelVersions versions;
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_MODEL_MODEL_PARTS_H_
