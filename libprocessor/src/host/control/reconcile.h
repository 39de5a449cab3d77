// SPDX-License-Identifier: Apache-2.0
// Compares what is desired with what is there, and plans what to do next: a pure function, so that every case can be
// tested without a model.
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

/// An instance of a version, as far as planning needs it. Several may have one number: one that serves, one that is to
/// replace it, and those that end.
struct VersionInstance {
  uint64_t id = 0;
  std::string model;
  int64_t number = 0;
  std::string identity;  // DesiredVersion::Identity() of what it was made from
  VersionState state = VersionState::kLoading;
  bool retry_due = false;  // it failed, and it is time to try again
};

/// A version that is desired and not loaded.
struct VersionToLoad {
  std::string model;
  int64_t number = 0;
  std::optional<uint64_t> instead_of;  // the failed instance that is tried again
};

/// What serves of a desired model.
struct ModelPlan {
  std::optional<uint64_t> baseline;     // instance; none while none is ready
  std::map<int64_t, uint64_t> serving;  // number -> ready instance
  std::map<int64_t, uint64_t>
      incoming;  // number -> instance that is loading or has failed, also beside one that serves
};

/// What to do next.
struct Plan {
  std::map<std::string, ModelPlan> models;
  std::vector<uint64_t> retire;     // ready, and not desired any more: they lose their traffic, then end
  std::vector<uint64_t> give_up;    // loading, and not desired any more
  std::vector<uint64_t> forget;     // failed, and not desired any more
  std::vector<VersionToLoad> load;  // in this order: baselines of models that nothing serves, baselines, others
};

/// Plans what to do next. `baselines`: the instance that serves as the baseline of each model now. It goes on serving
/// until the desired one is ready, even if it is not desired any more itself.
Plan Reconcile(const DesiredState& desired, const std::vector<VersionInstance>& instances,
               const std::map<std::string, uint64_t>& baselines);

}  // namespace processor

#endif  // PROCESSOR_HOST_CONTROL_RECONCILE_H_
