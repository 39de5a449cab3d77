// SPDX-License-Identifier: Apache-2.0
// The modern ABI's check of a desired state. It needs neither models nor kernels: libprocessor_rules.so has it as well.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "processor/processor.h"
#include "src/base/json_text.h"
#include "src/c_api/boundary.h"
#include "src/host/desired/desired_check.h"
#include "src/runtime/threads/cpuset.h"

namespace {

using processor::CpuSet;
using processor::DesiredFault;

std::string FaultsJson(const std::vector<DesiredFault> &faults) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const DesiredFault &fault : faults) {
    nlohmann::ordered_json entry;
    entry["model"] = fault.model.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(fault.model);
    entry["version"] = fault.version == 0 ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(fault.version);
    entry["message"] = fault.message;
    list.push_back(std::move(entry));
  }
  return processor::JsonText(list);
}

absl::Status ReadCpus(const char *text, CpuSet *cpus) {
  *cpus = processor::AllowedCpus();
  if (text == nullptr) return absl::OkStatus();
  // The CPUs of hosts on other machines, which may differ from those of this one.
  CpuSet any(8192);
  for (size_t i = 0; i < any.size(); ++i) any[i] = static_cast<int>(i);
  std::vector<CpuSet> groups;
  if (absl::Status s = processor::ParseCpusets(text, 1, any, &groups); !s.ok()) return s;
  *cpus = std::move(groups.front());
  return absl::OkStatus();
}

}  // namespace

extern "C" {

uint32_t processor_abi_version(void) { return PROCESSOR_ABI_VERSION; }

processor_status processor_desired_check(const void *json, size_t size, const char *cpus, char *faults, size_t capacity,
                                         size_t *faults_size, processor_error *error) {
  return processor::Guard(error, [&]() -> absl::Status {
    if (json == nullptr && size > 0) return absl::InvalidArgumentError("json: NULL, expected a desired.json");
    if (faults == nullptr && capacity > 0)
      return absl::InvalidArgumentError("faults: NULL, expected where to put them");
    if (faults_size == nullptr) return absl::InvalidArgumentError("faults_size: NULL, expected where to put it");
    *faults_size = 0;
    CpuSet allowed;
    if (absl::Status s = ReadCpus(cpus, &allowed); !s.ok()) return s;
    std::vector<DesiredFault> found;
    const std::string_view text(static_cast<const char *>(json), size);
    if (absl::Status s = processor::CheckDesired(text, allowed, &found); !s.ok()) return s;
    const std::string list = FaultsJson(found);
    *faults_size = list.size();
    if (capacity > 0) {
      const size_t copied = std::min(list.size(), capacity - 1);
      std::memcpy(faults, list.data(), copied);
      faults[copied] = '\0';
    }
    return absl::OkStatus();
  });
}

}  // extern "C"
