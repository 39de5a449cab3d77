// SPDX-License-Identifier: Apache-2.0
// Which CPUs share a last-level cache. Any thread may call these functions.
#ifndef PROCESSOR_KERNELS_CACHE_DOMAINS_H_
#define PROCESSOR_KERNELS_CACHE_DOMAINS_H_

#include <string>
#include <vector>

namespace processor {

/// The CPUs of a machine, grouped by the third-level cache that they share. All are one group if the system does not tell.
class CacheDomains {
 public:
  /// Reads a folder such as /sys/devices/system/cpu.
  explicit CacheDomains(const std::string& folder);

  static const CacheDomains& OfThisMachine();

  /// Returns the number of groups, at least 1.
  int count() const { return count_; }
  /// Returns the group of a CPU, from 0; of an unknown CPU 0.
  int Of(int cpu) const { return cpu >= 0 && cpu < static_cast<int>(of_cpu_.size()) ? of_cpu_[cpu] : 0; }
  /// Returns how many of these CPUs the group has that has most of them.
  int MostOf(const std::vector<int>& cpus) const;

 private:
  std::vector<int> of_cpu_;
  int count_ = 1;
};

}  // namespace processor

#endif  // PROCESSOR_KERNELS_CACHE_DOMAINS_H_
