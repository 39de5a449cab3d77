// SPDX-License-Identifier: Apache-2.0
// Responses of the methods that run no model: which models are served, in which state, with which signatures. They are
// pure functions of a view of the host; any thread may call them.
#ifndef PROCESSOR_CODEC_DESCRIPTIONS_H_
#define PROCESSOR_CODEC_DESCRIPTIONS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "src/base/signature.h"
#include "src/codec/codec.h"
#include "src/codec/model_spec.h"
#include "src/codec/protocols.h"

namespace processor {

/// The platform of every model, as Triton calls it.
constexpr const char* kPlatform = "tensorflow_savedmodel";

enum class VersionPhase : uint8_t { kLoading, kWarming, kReady, kDraining, kFailed };

/// Returns the name of a phase as in actual.json: "loading", "warming", "ready", "draining" or "failed".
std::string_view PhaseName(VersionPhase state);

/// Counts and times of a version's requests since it was first loaded.
struct InferenceCounts {
  uint64_t succeeded = 0, failed = 0;
  uint64_t rows = 0, runs = 0;  // of requests that succeeded
  uint64_t succeeded_ns = 0, failed_ns = 0, queue_ns = 0, decode_ns = 0, run_ns = 0, encode_ns = 0;
  uint64_t last_ms = 0;  // since 1970; 0: there was no request
};

/// One version of a model. What it points to is owned by the host and lives at least as long as the call.
struct VersionView {
  int64_t number = 0;
  VersionPhase state = VersionPhase::kLoading;
  /// Why it failed; OK in all other phases.
  absl::Status error;
  /// Null while it is not loaded.
  const SignatureSet* signatures = nullptr;
  int sessions = 0;
  /// The most rows of a batch, and how long a batch waits for more; 0: no batching.
  int64_t batch_rows = 0;
  int64_t batch_wait_us = 0;
  InferenceCounts counts = {};
};

/// One model and its versions.
struct ModelView {
  std::string name;
  std::vector<VersionView> versions;
  /// The version of requests that name none; 0 if there is none.
  int64_t baseline = 0;
  std::vector<std::pair<std::string, int64_t>> labels;
};

/// What a host serves.
struct HostView {
  /// False while the host starts or drains.
  bool ready = false;
  /// All models or, if the request is about one model, at least that one.
  std::vector<ModelView> models;
};

/// Answers a request of a method without codec (protocols.h).
/// \param model  the model that bytes and URL name together; empty parts mean the defaults.
/// \return NOT_FOUND for an unknown model, version, label or signature; UNAVAILABLE for signatures of a version that is
/// not loaded and, in JSON, for something that is not ready, because there a status says so; INVALID_ARGUMENT for
/// malformed bytes.
absl::Status Describe(const Method& method, std::string_view bytes, const ModelSpecView& model, const HostView& host,
                      Response* dst);

}  // namespace processor

#endif  // PROCESSOR_CODEC_DESCRIPTIONS_H_
