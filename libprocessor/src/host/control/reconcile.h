// SPDX-License-Identifier: Apache-2.0
// Compares the desired state with the instances, and plans what to do next: a pure function, so that every case can be
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

/// An instance of a version, as far as planning needs it. Several may have the same number: one that serves, its
/// replacement, and those that end.
struct VersionInstance {
  uint64_t id = 0;
  std::string model;
  int64_t number = 0;
  std::string identity;  // DesiredVersion::Identity() of its entry
  VersionState state = VersionState::kLoading;
  bool retry_due = false;  // it failed, and the next attempt is due
};

/// A desired version that is not loaded.
struct VersionToLoad {
  std::string model;
  int64_t number = 0;
  std::optional<uint64_t> instead_of;  // the failed instance, whose load is retried
};

/// The instances of a desired model.
struct ModelPlan {
  std::optional<uint64_t> baseline;     // instance; none while none is ready
  std::map<int64_t, uint64_t> serving;  // number -> ready instance
  std::map<int64_t, uint64_t>
      incoming;  // number -> instance that is loading or has failed, also beside one that serves
};

/// What to do next.
struct Plan {
  std::map<std::string, ModelPlan> models;
  std::vector<uint64_t> retire;     // ready, but no longer desired: they lose their traffic, then end
  std::vector<uint64_t> give_up;    // loading, but no longer desired
  std::vector<uint64_t> forget;     // failed, but no longer desired
  std::vector<VersionToLoad> load;  // in this order: baselines of models without a ready version, baselines, others
};

/// Plans what to do next. `baselines`: the instance that serves as the baseline of each model now. It continues to
/// serve until the desired one is ready, even if it is no longer desired itself.
Plan Reconcile(const DesiredState& desired, const std::vector<VersionInstance>& instances,
               const std::map<std::string, uint64_t>& baselines);

}  // namespace processor

#endif  // PROCESSOR_HOST_CONTROL_RECONCILE_H_
