// SPDX-License-Identifier: Apache-2.0
#include "src/host/desired/desired_check.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/host/desired/version_config.h"

namespace processor {

absl::Status CheckDesired(std::string_view text, const CpuSet& allowed, std::vector<DesiredFault>* faults) {
  DesiredState state;
  if (absl::Status s = ParseDesiredState(text, /*host_id=*/"", &state); !s.ok()) return s;
  *faults = std::move(state.faults);
  for (const auto& [name, model] : state.models) {
    for (const auto& [number, version] : model.versions) {
      if (!version.fault.ok()) continue;
      ModelConfig config;
      absl::Status status = CheckVersionConfig(version, number, &config);
      if (status.ok()) status = SetVersionCpus(version.cpuset, allowed, &config);
      if (status.ok()) continue;
      faults->push_back(
          {name, number,
           absl::StrCat("desired.json: models.", name, ".versions.", number, ".cpuset: ", status.message())});
    }
  }
  if (state.maintenance_cpus.empty()) return absl::OkStatus();
  // Hosts then use all CPUs, and only log the fault.
  std::vector<CpuSet> groups;
  if (const absl::Status s = ParseCpusets(state.maintenance_cpus, 1, allowed, &groups); !s.ok()) {
    faults->push_back({"", 0, absl::StrCat("desired.json: maintenance_cpus: ", s.message())});
  }
  return absl::OkStatus();
}

}  // namespace processor
