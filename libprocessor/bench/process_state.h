// SPDX-License-Identifier: Apache-2.0
// What the kernel says that this process holds.
#ifndef PROCESSOR_BENCH_PROCESS_STATE_H_
#define PROCESSOR_BENCH_PROCESS_STATE_H_

#include <dirent.h>

#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>

namespace processor::bench {

struct ProcessState {
  long rss_kb = 0;        // resident memory, all of it
  long anonymous_kb = 0;  // of that, not backed by files
  long threads = 0;
  long descriptors = 0;
};

/// Throws std::runtime_error where /proc is not mounted.
inline ProcessState ReadProcessState() {
  ProcessState state;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string name = line.substr(0, colon);
    const long value = std::strtol(line.c_str() + colon + 1, nullptr, 10);
    if (name == "VmRSS") state.rss_kb = value;
    if (name == "RssAnon") state.anonymous_kb = value;
    if (name == "Threads") state.threads = value;
  }
  status.close();
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr || state.rss_kb == 0) throw std::runtime_error("/proc/self: cannot be read");
  while (const dirent* entry = readdir(folder)) state.descriptors += entry->d_name[0] != '.';
  closedir(folder);
  --state.descriptors;  // the folder's own
  return state;
}

}  // namespace processor::bench

#endif  // PROCESSOR_BENCH_PROCESS_STATE_H_
