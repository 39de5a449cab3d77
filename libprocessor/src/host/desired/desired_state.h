// SPDX-License-Identifier: Apache-2.0
// desired.json as C++: what is to be served. docs/model_host.md explains every key.
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

namespace processor {

/// The schema number that this library reads.
constexpr int kDesiredSchema = 1;

struct RoutingRules {
  std::string salt;  // of the layer
  std::optional<std::string> key_input;
  std::vector<RoutingArm> arms;  // by rising offset; those of no weight are left out
  bool paused = false;
};

struct ShadowTarget {
  int64_t version = 0;
  int weight = 0;  // hundredths of a percent
};

/// A sample of the requests that is written down.
struct RequestLogSettings {
  int sample = 0;  // hundredths of a percent; 0: none
  int64_t max_bytes = int64_t{16} << 20;
  int max_files = 8;
};

struct AdmissionLimits {
  int max_queue = 1000;
  int max_in_flight = 0;  // 0: none
};

/// The files that a version had when it was deployed; empty: nobody knows.
struct DesiredFiles {
  std::string sha256;  // of names, sizes and contents
  std::string seal;    // of names, sizes and times: while it is the same, nothing need be read
};

struct DesiredVersion {
  absl::Status fault;  // not OK: the entry is wrong, and the version cannot be loaded
  std::string path;
  DesiredFiles files;
  std::string config = "{}";  // JSON
  std::string warmup_file;
  std::string cpuset;  // of this host
  BatchOptions batching;
  AdmissionLimits limits;
  int priority = 0;
  bool traffic = true;

  /// What makes it another version: one with another identity is loaded anew. Entries that are wrong differ by their fault.
  std::string Identity() const;
};

struct DesiredModel {
  int64_t baseline = 0;
  std::map<std::string, int64_t, std::less<>> labels;
  RoutingRules routing;
  std::vector<ShadowTarget> shadow;
  RequestLogSettings request_log;
  std::map<int64_t, DesiredVersion> versions;
};

/// What is wrong with a part of a desired state, of which the rest stands.
struct DesiredFault {
  std::string model;    // empty: of no model, and without effect on any
  int64_t version = 0;  // 0: the model is refused as a whole
  std::string message;

  bool refuses_model() const { return !model.empty() && version == 0; }
};

/// Versions that the control plane refused, by models and numbers, with its reasons. They are never loaded.
using RefusedVersions = std::map<std::string, std::map<int64_t, absl::Status>, std::less<>>;

struct DesiredState {
  int64_t generation = 0;
  int64_t memory_limit_bytes = 0;  // 0: what the machine has
  std::string maintenance_cpus;    // empty: all
  double load_timeout_s = 600;     // of versions that say nothing of it; 0: none
  std::map<std::string, DesiredModel, std::less<>> models;
  RefusedVersions refused;
  std::vector<DesiredFault> faults;
};

/// Reads desired.json for a host: the cpusets that it gives that host overrule those of the versions.
///
/// What is wrong within a version refuses that version, which is there with its fault; what is wrong within a model
/// refuses that model, which is not there. Both are told in `state->faults`.
/// \return INVALID_ARGUMENT if the file as a whole cannot be followed: it does not parse, or is of another schema. Messages
///         name the place in the file, what stands there and what was expected.
absl::Status ParseDesiredState(std::string_view text, std::string_view host_id, DesiredState* state);

/// May it be the name of a model or a label? 1 to 128 letters, digits, '_', '-' and '.', the first no '-' or '.'.
bool IsServingName(std::string_view name);

}  // namespace processor

#endif  // PROCESSOR_HOST_DESIRED_DESIRED_STATE_H_
