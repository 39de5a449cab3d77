// SPDX-License-Identifier: Apache-2.0
// The actual state of a host, which is written to actual.json and from which status requests are answered. The host's
// control owns it; the control thread writes the file whenever the state has changed.
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

/// The reported versions of each model, by their numbers.
using ActualModels = std::map<std::string, std::map<int64_t, ActualEntry>>;

ActualModels DescribeModels(const Plan& plan, const DesiredState& desired, const Instances& instances);

/// Every function may be called from any thread, except for Write(), which is for the control thread.
class ActualFile {
 public:
  /// `directory` is borrowed.
  ActualFile(const StateDirectory* directory, const std::string& host_id);

  ActualState Get() const;
  bool has_endpoints() const;

  /// An empty address removes the endpoint.
  void SetEndpoint(const std::string& name, const std::string& address);
  void SetDraining();
  /// Sets why desired.json is not followed; logs it if it has changed.
  void SetDesiredError(const std::string& error);
  /// Sets why the writer of desired.json has no state yet; "" if it has one.
  void SetWaiting(const std::string& waiting);
  void SetFrontEndCpus(const CpuSet& cpus);
  /// Sets the versions. `ready`: whether the host has loaded the versions that it starts with.
  void SetModels(ActualModels models, const DesiredState& desired, const Instances& instances, int64_t memory_limit,
                 bool ready);

  /// Writes the file if the state has changed, or the warm-up of a version has begun or ended.
  void Write(const Instances& instances);

 private:
  const StateDirectory& directory_;

  mutable std::mutex mutex_;
  ActualState state_;
  bool dirty_ = true;  // the file is out of date

  // Of the control thread.
  bool written_warming_ = false;
  std::string write_error_;  // that was logged last
  int64_t write_at_ns_ = 0;
};

}  // namespace processor

#endif  // PROCESSOR_HOST_CONTROL_ACTUAL_FILE_H_
