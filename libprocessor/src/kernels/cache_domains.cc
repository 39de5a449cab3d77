// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/cache_domains.h"

#include <algorithm>
#include <fstream>
#include <map>

namespace processor {
namespace {

constexpr int kMostCpus = 8192;  // of Linux

}  // namespace

CacheDomains::CacheDomains(const std::string& folder) {
  std::map<std::string, int> groups;  // by the list of the CPUs that share the cache
  int unknown = 0;
  // CPUs that are off have no caches; numbers may be missing.
  for (int cpu = 0; cpu < kMostCpus && unknown < 64; ++cpu) {
    std::ifstream file(folder + "/cpu" + std::to_string(cpu) + "/cache/index3/shared_cpu_list");
    std::string shared;
    if (!std::getline(file, shared)) {
      ++unknown;
      continue;
    }
    unknown = 0;
    of_cpu_.resize(static_cast<size_t>(cpu) + 1);
    of_cpu_.back() = groups.emplace(shared, static_cast<int>(groups.size())).first->second;
  }
  count_ = std::max(static_cast<int>(groups.size()), 1);
}

const CacheDomains& CacheDomains::OfThisMachine() {
  // Never destroyed: threads may still compute while the process ends.
  static const auto* const domains = new CacheDomains("/sys/devices/system/cpu");
  return *domains;
}

int CacheDomains::MostOf(const std::vector<int>& cpus) const {
  std::vector<int> counts(static_cast<size_t>(count_));
  for (int cpu : cpus) ++counts[static_cast<size_t>(Of(cpu))];
  return *std::max_element(counts.begin(), counts.end());
}

}  // namespace processor
