// SPDX-License-Identifier: Apache-2.0
// From what is desired and what is there to what is to be done next: a pure function, so that every case can be tested
// without a model.
#ifndef PROCESSOR_HOST_CONTROL_RECONCILE_H_
#define PROCESSOR_HOST_CONTROL_RECONCILE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/host/desired/desired_state.h"
#include "src/host/versions/version_state.h"

namespace processor {

/// What is there of a version. Of one number there may be several: one that serves, one that is to replace it, and
/// those that end.
struct VersionInstance {
  uint64_t id = 0;
  std::string model;
  int64_t number = 0;
  std::string identity;  // DesiredVersion::Identity() of what it was made from
  VersionState state = VersionState::kLoading;
  bool retry_due = false;  // failed, and it is time to try again
};

/// A version that is wanted and not there.
struct VersionToLoad {
  std::string model;
  int64_t number = 0;
  std::optional<uint64_t> instead_of;  // the failed instance that is tried again
};

/// What serves, of a model that is desired.
struct ModelPlan {
  std::optional<uint64_t> baseline;     // instance; none while none is ready
  std::map<int64_t, uint64_t> serving;  // number -> ready instance
  std::map<int64_t, uint64_t>
      incoming;  // number -> instance that is loading or has failed, also beside one that serves
};

struct Plan {
  std::map<std::string, ModelPlan> models;
  std::vector<uint64_t> retire;     // ready, and not wanted any more: they lose their traffic, then end
  std::vector<uint64_t> give_up;    // loading, and not wanted any more
  std::vector<uint64_t> forget;     // failed, and not wanted any more
  std::vector<VersionToLoad> load;  // in this order, one at a time: baselines that nothing serves, baselines, others
};

/// `baselines`: which instance serves as the baseline of each model now. It goes on doing so until the desired one is
/// ready, also if it is desired no more itself.
Plan Reconcile(const DesiredState& desired, const std::vector<VersionInstance>& instances,
               const std::map<std::string, uint64_t>& baselines);

}  // namespace processor

#endif  // PROCESSOR_HOST_CONTROL_RECONCILE_H_
