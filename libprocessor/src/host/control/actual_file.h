// SPDX-License-Identifier: Apache-2.0
// What a host tells of itself: the state that actual.json and the answers to questions are made of. The host's control owns
// it; the control thread writes the file whenever the state has changed.
#ifndef PROCESSOR_HOST_CONTROL_ACTUAL_FILE_H_
#define PROCESSOR_HOST_CONTROL_ACTUAL_FILE_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "src/host/control/instances.h"
#include "src/host/control/reconcile.h"
#include "src/host/desired/desired_state.h"
#include "src/host/files/state_directory.h"
#include "src/host/reports/actual_state.h"
#include "src/runtime/threads/cpuset.h"

namespace processor {

/// What is told of the versions of each model, by their numbers.
using ActualModels = std::map<std::string, std::map<int64_t, ActualEntry>>;

ActualModels DescribeModels(const Plan& plan, const DesiredState& desired, const Instances& instances);

/// Every function may be called from any thread, but for Write().
class ActualFile {
 public:
  /// `directory` is borrowed.
  ActualFile(const StateDirectory* directory, const std::string& host_id);

  ActualState Get() const;
  bool has_endpoints() const;

  /// "" as address: none.
  void SetEndpoint(const std::string& name, const std::string& address);
  void SetDraining();
  /// Why desired.json is not followed; logged if it is something new.
  void SetDesiredError(const std::string& error);
  void SetFrontEndCpus(const CpuSet& cpus);
  /// Sets what the control thread has found. `ready`: whether the host has loaded what it begins with.
  void SetModels(ActualModels models, const DesiredState& desired, const Instances& instances, int64_t memory_limit,
                 bool ready);

  /// Writes the file if the state has changed, or a version has begun or ended to warm up.
  void Write(const Instances& instances);

 private:
  const StateDirectory& directory_;

  mutable std::mutex mutex_;
  ActualState state_;
  bool dirty_ = true;  // the file says something else

  // Of the control thread.
  bool written_warming_ = false;
  std::string write_error_;  // that was logged last
  int64_t write_at_ns_ = 0;
};

}  // namespace processor

#endif  // PROCESSOR_HOST_CONTROL_ACTUAL_FILE_H_
