// SPDX-License-Identifier: Apache-2.0
// The state of a host and its versions as plain data, and its text in actual.json.
#ifndef PROCESSOR_HOST_REPORTS_ACTUAL_STATE_H_
#define PROCESSOR_HOST_REPORTS_ACTUAL_STATE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "src/host/desired/desired_state.h"
#include "src/host/versions/hosted_version.h"
#include "src/host/versions/version_state.h"

namespace processor {

/// The reported state of a version.
struct ActualVersion {
  VersionState state = VersionState::kLoading;
  std::string path;
  std::string error;     // empty if there is none
  absl::Status failure;  // why it failed; also in `error`
  std::string since;
  double load_ms = 0;
  int64_t memory_bytes = 0;
  int sessions = 0;
  std::string cpuset;
  std::string precision;
  std::string warmup;  // the outcome of the warm-up
  // Read when the text is made.
  std::shared_ptr<const LoadProgress> progress;
  std::shared_ptr<const VersionLoad> load;
};

/// A version and its replacement, if one is loading.
struct ActualEntry {
  ActualVersion version;
  std::optional<ActualVersion> replacement;
};

enum class HostState { kStarting, kReady, kDraining };
const char* HostStateName(HostState state);

/// The reported state of a host.
struct ActualState {
  std::string host;
  std::string started;
  std::string version;                // the release of this library
  std::vector<std::string> features;  // what it can do
  int64_t generation = 0;
  std::string desired_error;  // why desired.json is not followed; empty if it is
  std::string waiting;        // why its writer has no state yet; empty if it has one
  HostState state = HostState::kStarting;
  std::map<std::string, std::string> endpoints;
  std::string cpus;
  std::string front_end_cpus;
  int64_t memory_bytes = 0;
  int64_t memory_limit_bytes = 0;
  int stuck_loads = 0;  // loads that are no longer desired but cannot be interrupted
  std::map<std::string, std::map<int64_t, ActualEntry>> models;
  /// For status requests about refused versions; not in actual.json.
  RefusedVersions refused;
};

/// Returns the state of a version; kWarming if it is loading and has begun to warm up.
VersionState StateNow(const ActualVersion& version);

/// Returns the text of actual.json.
std::string ActualJson(const ActualState& state);

}  // namespace processor

#endif  // PROCESSOR_HOST_REPORTS_ACTUAL_STATE_H_
