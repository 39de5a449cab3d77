// SPDX-License-Identifier: Apache-2.0
// desired.json as C++: what is to be served. docs/model_host.md explains every key.
#ifndef PROCESSOR_HOST_DESIRED_STATE_H_
#define PROCESSOR_HOST_DESIRED_STATE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "src/host/routing.h"
#include "src/runtime/batch_options.h"

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

struct DesiredVersion {
  std::string path;
  std::string config = "{}";  // JSON
  std::string warmup_file;
  std::string cpuset;  // of this host
  BatchOptions batching;
  AdmissionLimits limits;
  int priority = 0;
  bool traffic = true;

  /// What makes it another version: one with another identity is loaded anew.
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

struct DesiredState {
  int64_t generation = 0;
  int64_t memory_limit_bytes = 0;  // 0: what the machine has
  std::string maintenance_cpus;    // empty: all
  std::map<std::string, DesiredModel, std::less<>> models;
};

/// Reads desired.json for a host: the cpusets that it gives that host overrule those of the versions.
/// \return INVALID_ARGUMENT that names the place in the file, what stands there and what was expected.
absl::Status ParseDesiredState(std::string_view text, std::string_view host_id, DesiredState* state);

/// May it be the name of a model or a label? 1 to 128 letters, digits, '_', '-' and '.', the first no '-' or '.'.
bool IsServingName(std::string_view name);

}  // namespace processor

#endif  // PROCESSOR_HOST_DESIRED_STATE_H_
