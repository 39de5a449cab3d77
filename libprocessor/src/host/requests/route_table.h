// SPDX-License-Identifier: Apache-2.0
// Maps requests to versions: an immutable snapshot of all models. A change makes another table. The route publisher
// owns the current one; requests take references to what they need of it.
#ifndef PROCESSOR_HOST_REQUESTS_ROUTE_TABLE_H_
#define PROCESSOR_HOST_REQUESTS_ROUTE_TABLE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "src/base/name_index.h"
#include "src/codec/model_spec.h"
#include "src/host/desired/desired_state.h"
#include "src/host/versions/hosted_version.h"

namespace processor {

class ModelLog;
class ShadowLane;
class VersionStats;

/// Texts that belong to a response. Results share them, so that they keep no version alive.
struct AnswerTexts {
  std::string model;
  std::vector<std::string> cpusets;  // [sessions]
};

/// A version that is ready, with its current settings.
struct Servable {
  std::shared_ptr<HostedVersion> version;
  uint16_t instance = 0;  // identifies it in the numbers of requests
  int64_t number = 0;
  bool is_baseline = false;
  int priority = 0;
  AdmissionLimits limits;
  std::shared_ptr<const AnswerTexts> texts;
  std::shared_ptr<VersionStats> stats;
  std::shared_ptr<ModelLog> log;  // of its model; null if it was never sampled
};

/// Why a version was chosen.
enum class ChoiceReason { kBaseline, kArm, kPinned, kFallback };
const char* ChoiceName(ChoiceReason reason);

/// A version of a model, ready or not.
struct VersionRoute {
  std::shared_ptr<const Servable> servable;  // null while it is not ready
  std::string state;                         // while it is not ready
  bool traffic = true;
};

/// A version that gets mirrored requests of the baseline.
struct ShadowRoute {
  int64_t version = 0;
  int weight = 0;  // hundredths of a percent
  std::shared_ptr<ShadowLane> lane;
};

/// Everything that requests for one model need.
struct ModelRoutes {
  std::string name;
  std::shared_ptr<const Servable> baseline;  // null while none is ready
  std::string baseline_state;                // while none is: "version 3 is loading"
  int64_t baseline_number = 0;               // of the baseline that serves, else of the desired one
  std::map<int64_t, VersionRoute> versions;
  std::map<std::string, int64_t, std::less<>> labels;
  RoutingRules rules;
  std::vector<ShadowRoute> shadows;
  std::shared_ptr<ModelLog> log;                   // null if the model was never sampled
  std::shared_ptr<std::atomic<uint64_t>> keyless;  // the number of requests without a key; kept from table to table
};

/// The model and version that a request names, and a function that returns its routing key, which is called only if
/// needed.
struct RouteRequest {
  ModelSpecView spec;
  std::function<std::optional<std::string>(const RoutingRules& rules)> key;
};

/// The version that answers a request.
struct RouteChoice {
  std::shared_ptr<const Servable> servable;
  ChoiceReason reason = ChoiceReason::kBaseline;
};

/// Chooses the version that answers a request, as docs/model_host.md says.
/// \return NOT_FOUND for a version or label that does not exist or has no traffic, UNAVAILABLE for one that is not
///         ready.
absl::Status ChooseVersion(const ModelRoutes& routes, const RouteRequest& request, RouteChoice* choice);

/// The routes of all models.
class RouteTable {
 public:
  void Add(std::shared_ptr<const ModelRoutes> model);

  /// Finds the routes of a model, which live as long as the table. "" stands for the only model.
  /// \return NOT_FOUND if no model has that name, INVALID_ARGUMENT for "" if there are several models.
  absl::Status Find(std::string_view model, const ModelRoutes** routes) const;

  const std::vector<std::shared_ptr<const ModelRoutes>>& models() const { return models_; }

 private:
  NameIndex index_;
  std::vector<std::shared_ptr<const ModelRoutes>> models_;
};

}  // namespace processor

#endif  // PROCESSOR_HOST_REQUESTS_ROUTE_TABLE_H_
