// SPDX-License-Identifier: Apache-2.0
// A simulated machine of 128 CPUs.
#ifndef PROCESSOR_TESTS_KERNELS_SIMULATED_CACHES_H_
#define PROCESSOR_TESTS_KERNELS_SIMULATED_CACHES_H_

#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace processor {

/// Writes what the system tells of a machine with 16 last-level caches for 8 CPUs each, of which CPUs 3 and 77 are off.
/// Returns the folder, as for CacheDomains.
inline std::string SixteenCaches() {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "sixteen_caches";
  for (int cpu = 0; cpu < 128; ++cpu) {
    if (cpu == 3 || cpu == 77) continue;
    const std::filesystem::path cache = folder / ("cpu" + std::to_string(cpu)) / "cache" / "index3";
    std::filesystem::create_directories(cache);
    const int first = cpu / 8 * 8;
    std::ofstream(cache / "shared_cpu_list") << first << "-" << first + 7 << "\n";
  }
  return folder.string();
}

}  // namespace processor

#endif  // PROCESSOR_TESTS_KERNELS_SIMULATED_CACHES_H_
