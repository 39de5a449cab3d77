// SPDX-License-Identifier: Apache-2.0
// The content of desired.json as plain data. docs/model_host.md explains every key.
#ifndef PROCESSOR_HOST_DESIRED_DESIRED_STATE_H_
#define PROCESSOR_HOST_DESIRED_DESIRED_STATE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "src/host/desired/routing.h"
#include "src/runtime/config/batch_options.h"
#include "src/runtime/config/table_options.h"

namespace processor {

/// The schema number that this library reads.
constexpr int kDesiredSchema = 1;

/// How the requests of a model are split between its versions.
struct RoutingRules {
  std::string salt;  // of the layer
  std::optional<std::string> key_input;
  std::vector<RoutingArm> arms;  // by rising offset; arms without weight are left out
  bool paused = false;
};

/// A version that gets mirrored requests.
struct ShadowTarget {
  int64_t version = 0;
  int weight = 0;  // share of the baseline's requests, in hundredths of a percent
};

/// Which sample of the requests is written to the request log, and how large that may grow.
struct RequestLogSettings {
  int sample = 0;  // hundredths of a percent; 0: no request
  int64_t max_bytes = int64_t{16} << 20;
  int max_files = 8;
};

/// How many requests of a version may wait, and how many may be in flight.
struct AdmissionLimits {
  int max_queue = 1000;
  int max_in_flight = 0;  // 0: no limit
};

/// The files that a version had when it was deployed; empty if that is not known.
struct DesiredFiles {
  std::string sha256;  // of names, sizes and contents
  std::string seal;    // of names, sizes and times: while it is the same, no file has to be read
};

/// A version of a model, and the settings that it is to be served with.
struct DesiredVersion {
  absl::Status fault;  // why the entry is faulty and cannot be loaded; OK if it is valid
  std::string path;
  DesiredFiles files;
  std::string config = "{}";  // JSON
  std::string warmup_file;
  std::string cpuset;  // of this host
  BatchOptions batching;
  TableOptions tables;
  AdmissionLimits limits;
  int priority = 0;
  bool traffic = true;
  std::string follow;              // the folder of a timeline of deltas; empty: none
  std::optional<int64_t> epoch;    // at which to stay; none: the newest
  std::vector<std::string> needs;  // features without which no host can serve it

  /// Returns a text of all settings that require a load: an entry with another identity is loaded again. Faulty entries
  /// differ by their faults.
  std::string Identity() const;
};

/// A model, its versions and how they are served.
struct DesiredModel {
  int64_t baseline = 0;
  std::map<std::string, int64_t, std::less<>> labels;
  RoutingRules routing;
  std::vector<ShadowTarget> shadow;
  RequestLogSettings request_log;
  std::map<int64_t, DesiredVersion> versions;
};

/// A fault in a part of a desired state. The rest is followed.
struct DesiredFault {
  std::string model;    // empty: no model is affected
  int64_t version = 0;  // 0: the model is refused as a whole
  std::string message;

  bool refuses_model() const { return !model.empty() && version == 0; }
};

/// Versions that the control plane refused, by models and numbers, with its reasons. They are never loaded.
using RefusedVersions = std::map<std::string, std::map<int64_t, absl::Status>, std::less<>>;

/// Everything that hosts are to serve.
struct DesiredState {
  int64_t generation = 0;
  std::string waiting;             // why the writer has no state yet; not empty: the file is not to be followed
  int64_t memory_limit_bytes = 0;  // 0: the memory of the machine
  std::string maintenance_cpus;    // empty: all CPUs
  bool drained = false;            // this host is to finish its requests and end, and is not to be ready again
  double load_timeout_s = 600;     // of versions that do not set their own; 0: no limit
  std::map<std::string, DesiredModel, std::less<>> models;
  RefusedVersions refused;
  std::vector<DesiredFault> faults;
};

/// Reads desired.json for a host: the cpusets that the file has for this host override those of the versions.
///
/// A fault within a version refuses that version, which is kept with its fault. A fault within a model refuses that
/// model, which is left out. Both are listed in `state->faults`.
/// \return INVALID_ARGUMENT if the file as a whole cannot be followed: it does not parse, or has another schema.
///         Messages name the place in the file, the value and what was expected.
absl::Status ParseDesiredState(std::string_view text, std::string_view host_id, DesiredState* state);

/// Whether a text may be the name of a model or a label: 1 to 128 letters, digits, '_', '-' and '.', the first no '-'
/// or '.'.
bool IsServingName(std::string_view name);

}  // namespace processor

#endif  // PROCESSOR_HOST_DESIRED_DESIRED_STATE_H_
