// SPDX-License-Identifier: Apache-2.0
// actual.json: what a host serves.
#ifndef PROCESSOR_HOST_REPORTS_ACTUAL_STATE_H_
#define PROCESSOR_HOST_REPORTS_ACTUAL_STATE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "src/host/desired/desired_state.h"
#include "src/host/versions/hosted_version.h"
#include "src/host/versions/version_state.h"

namespace processor {

/// One version, or the one that is to replace it.
struct ActualVersion {
  VersionState state = VersionState::kLoading;
  std::string path;
  std::string error;     // empty: none
  absl::Status failure;  // of a version that failed, also in `error`
  std::string since;
  double load_ms = 0;
  int64_t memory_bytes = 0;
  int sessions = 0;
  std::string cpuset;
  std::string precision;
  std::string warmup;  // what came of it
  // Looked at when the text is made.
  std::shared_ptr<const LoadProgress> progress;
  std::shared_ptr<const VersionLoad> load;
};

struct ActualEntry {
  ActualVersion version;
  std::optional<ActualVersion> replacement;
};

enum class HostState { kStarting, kReady, kDraining };
const char* HostStateName(HostState state);

struct ActualState {
  std::string host;
  std::string started;
  int64_t generation = 0;
  std::string desired_error;  // empty: none
  HostState state = HostState::kStarting;
  std::map<std::string, std::string> endpoints;
  std::string cpus;
  std::string front_end_cpus;
  int64_t memory_bytes = 0;
  int64_t memory_limit_bytes = 0;
  int stuck_loads = 0;  // that nobody wants any more, and that cannot be interrupted
  std::map<std::string, std::map<int64_t, ActualEntry>> models;
  /// For those who ask what became of a version; not in actual.json.
  RefusedVersions refused;
};

/// Loading, or warming up by now.
VersionState StateNow(const ActualVersion& version);

std::string ActualJson(const ActualState& state);

/// Now, as in "2026-11-21T19:00:00Z".
std::string WallClockText();

}  // namespace processor

#endif  // PROCESSOR_HOST_REPORTS_ACTUAL_STATE_H_
