// SPDX-License-Identifier: Apache-2.0
// Which version answers a request: the state of all models at one moment, which never changes. A change makes another
// table; requests take a reference to what they need of the current one.
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

/// Words that an answer says of itself. Results keep them for as long as their owners like, and so nothing else.
struct AnswerTexts {
  std::string model;
  std::vector<std::string> cpusets;  // [sessions]
};

/// A ready version with the settings of the moment.
struct Servable {
  std::shared_ptr<HostedVersion> version;
  uint16_t instance = 0;  // tells it from others, in numbers of requests
  int64_t number = 0;
  bool is_baseline = false;
  int priority = 0;
  AdmissionLimits limits;
  std::shared_ptr<const AnswerTexts> texts;
  std::shared_ptr<VersionStats> stats;
  std::shared_ptr<ModelLog> log;  // of its model; null where no request was ever to be written down
};

/// Why a version was chosen.
enum class ChoiceReason { kBaseline, kArm, kPinned, kFallback };
const char* ChoiceName(ChoiceReason reason);

/// A version of a model, ready or not.
struct VersionRoute {
  std::shared_ptr<const Servable> servable;  // null while it is not ready
  std::string state;                         // then
  bool traffic = true;
};

/// A version that gets copies of what the baseline answers.
struct ShadowRoute {
  int64_t version = 0;
  int weight = 0;  // hundredths of a percent
  std::shared_ptr<ShadowLane> lane;
};

/// All that requests for one model need.
struct ModelRoutes {
  std::string name;
  std::shared_ptr<const Servable> baseline;  // null while none is ready
  std::string baseline_state;                // then: "version 3 is loading"
  int64_t baseline_number = 0;               // that serves, else that is desired
  std::map<int64_t, VersionRoute> versions;
  std::map<std::string, int64_t, std::less<>> labels;
  RoutingRules rules;
  std::vector<ShadowRoute> shadows;
  std::shared_ptr<ModelLog> log;                   // null: none
  std::shared_ptr<std::atomic<uint64_t>> keyless;  // requests without a key; kept from table to table
};

/// What a request wants, and how to learn its key, which is only asked for if it matters.
struct RouteRequest {
  ModelSpecView spec;
  std::function<std::optional<std::string>(const RoutingRules& rules)> key;
};

struct RouteChoice {
  std::shared_ptr<const Servable> servable;
  ChoiceReason reason = ChoiceReason::kBaseline;
};

/// Chooses as docs/model_host.md says.
/// \return NOT_FOUND for a version or label that is not there or has no traffic, UNAVAILABLE for one that is not ready.
absl::Status ChooseVersion(const ModelRoutes& routes, const RouteRequest& request, RouteChoice* choice);

class RouteTable {
 public:
  void Add(std::shared_ptr<const ModelRoutes> model);

  /// The routes of a model, which live as long as the table; of the only one for "".
  /// \return NOT_FOUND if there is none of that name, INVALID_ARGUMENT for "" if there are several.
  absl::Status Find(std::string_view model, const ModelRoutes** routes) const;

  const std::vector<std::shared_ptr<const ModelRoutes>>& models() const { return models_; }

 private:
  NameIndex index_;
  std::vector<std::shared_ptr<const ModelRoutes>> models_;
};

}  // namespace processor

#endif  // PROCESSOR_HOST_REQUESTS_ROUTE_TABLE_H_
