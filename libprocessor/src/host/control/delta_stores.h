// SPDX-License-Identifier: Apache-2.0
// The folder in which a host keeps copies of the deltas that its versions have applied. The host's control owns it.
#ifndef PROCESSOR_HOST_CONTROL_DELTA_STORES_H_
#define PROCESSOR_HOST_CONTROL_DELTA_STORES_H_

#include <string>
#include <utility>

#include "src/host/control/instances.h"
#include "src/host/desired/desired_state.h"

namespace processor {

/// For the control thread.
class DeltaStores {
 public:
  explicit DeltaStores(std::string folder) : folder_(std::move(folder)) {}

  const std::string& folder() const { return folder_; }

  /// Removes the copies that no version needs any more: neither a desired one nor one that is still loaded.
  void RemoveUnused(const DesiredState& desired, const Instances& instances) const;

 private:
  const std::string folder_;
};

}  // namespace processor

#endif  // PROCESSOR_HOST_CONTROL_DELTA_STORES_H_
