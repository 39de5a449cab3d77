// SPDX-License-Identifier: Apache-2.0
// Answers to the methods that run no model: what is served, in which state, with which signatures.
//
// Pure functions of what the host tells of itself.
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

namespace processor {

/// The platform that is named for every model, as Triton names it.
constexpr const char* kPlatform = "tensorflow_savedmodel";

enum class VersionPhase : uint8_t { kLoading, kWarming, kReady, kDraining, kFailed };

/// "loading", "warming", "ready", "draining", "failed": as in actual.json.
std::string_view PhaseName(VersionPhase state);

/// Counts and times of a version's requests, since it was loaded for the first time.
struct InferenceCounts {
  uint64_t succeeded = 0, failed = 0;
  uint64_t rows = 0, runs = 0;  // of requests that succeeded
  uint64_t succeeded_ns = 0, failed_ns = 0, queue_ns = 0, decode_ns = 0, run_ns = 0, encode_ns = 0;
  uint64_t last_ms = 0;  // since 1970; 0: there was none
};

/// One version of a model, as the host sees it. What it points at lives as long as the call.
struct VersionView {
  int64_t number = 0;
  VersionPhase state = VersionPhase::kLoading;
  /// Why it has failed.
  absl::Status error;
  /// Null as long as it is not loaded.
  const SignatureSet* signatures = nullptr;
  int sessions = 0;
  /// Rows that are put together, and how long they wait for each other; 0: requests run alone.
  int64_t batch_rows = 0;
  int64_t batch_wait_us = 0;
  InferenceCounts counts = {};
};

struct ModelView {
  std::string name;
  std::vector<VersionView> versions;
  /// The one that is meant by none; 0 if there is none.
  int64_t baseline = 0;
  std::vector<std::pair<std::string, int64_t>> labels;
};

struct HostView {
  /// False while it starts and drains.
  bool ready = false;
  /// All models or, if the request is about one, that one at least.
  std::vector<ModelView> models;
};

/// Answers a method without codec (codec.h).
/// \param model  what the bytes and the URL say together; empty parts mean the default ones.
/// \return NOT_FOUND for a model, version, label or signature that is not there; UNAVAILABLE for signatures of a version
/// that is not loaded and, in JSON, where the answer would be that something is not ready: a status says it there.
/// INVALID_ARGUMENT for malformed bytes, UNIMPLEMENTED for a method that is not one of these.
absl::Status Describe(std::string_view protocol, std::string_view method, std::string_view bytes,
                      const ModelSpecView& model, const HostView& host, Response* dst);

}  // namespace processor

#endif  // PROCESSOR_CODEC_DESCRIPTIONS_H_
