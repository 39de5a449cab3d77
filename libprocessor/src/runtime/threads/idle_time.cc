// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/threads/idle_time.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace processor {
namespace {

// "cpuN user nice system idle iowait irq softirq steal guest guest_nice"; guests count as user as well.
constexpr size_t kIdle = 4, kIoWait = 5, kFirst = 1, kEnd = 9;

CpuTicks ReadTicks(const CpuSet& cpus) {
  std::ifstream file("/proc/stat");
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return SumTicks(text, cpus);
}

}  // namespace

CpuTicks SumTicks(std::string_view proc_stat, const CpuSet& cpus) {
  CpuTicks ticks;
  for (const std::string_view line : absl::StrSplit(proc_stat, '\n')) {
    const std::vector<std::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    std::string_view name = words.empty() ? std::string_view() : words[0];
    int cpu = 0;
    if (!absl::ConsumePrefix(&name, "cpu") || !absl::SimpleAtoi(name, &cpu)) continue;
    if (!std::binary_search(cpus.begin(), cpus.end(), cpu)) continue;
    for (size_t i = kFirst; i < std::min(words.size(), kEnd); ++i) {
      int64_t value = 0;
      if (!absl::SimpleAtoi(words[i], &value)) continue;
      ticks.total += value;
      if (i == kIdle || i == kIoWait) ticks.idle += value;
    }
  }
  return ticks;
}

double IdleShare(const CpuSet& cpus, std::chrono::milliseconds time) {
  const CpuTicks before = ReadTicks(cpus);
  std::this_thread::sleep_for(time);
  const CpuTicks after = ReadTicks(cpus);
  const int64_t total = after.total - before.total;
  if (total <= 0) return 1;
  return std::clamp(static_cast<double>(after.idle - before.idle) / static_cast<double>(total), 0.0, 1.0);
}

}  // namespace processor
