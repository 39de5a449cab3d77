// SPDX-License-Identifier: Apache-2.0
#include "src/base/machine_memory.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace processor {
namespace {

namespace fs = std::filesystem;

std::string ReadText(const fs::path& path) {
  std::ifstream stream(path);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

// A file that holds one number; what is none ("max") limits nothing.
int64_t LimitIn(const fs::path& path) {
  int64_t limit = 0;
  const std::string text = ReadText(path);
  return absl::SimpleAtoi(absl::StripAsciiWhitespace(text), &limit) && limit > 0 ? limit
                                                                                 : std::numeric_limits<int64_t>::max();
}

// The least limit of a group and those above it.
int64_t LimitOfGroup(const fs::path& mount, std::string group, const char* file) {
  int64_t limit = LimitIn(mount / file);
  for (; group.size() > 1; group = fs::path(group).parent_path().string()) {
    limit = std::min(limit, LimitIn(fs::path(mount.string() + group) / file));
  }
  return limit;
}

int64_t LimitOfGroups(const std::string& root) {
  int64_t limit = std::numeric_limits<int64_t>::max();
  const fs::path mount = root + "/sys/fs/cgroup";
  for (std::string_view line : absl::StrSplit(ReadText(root + "/proc/self/cgroup"), '\n')) {
    // "0::/group" of v2, "7:memory:/group" of v1.
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    if (parts[1].empty()) limit = std::min(limit, LimitOfGroup(mount, parts[2], "memory.max"));
    const std::vector<std::string_view> controllers = absl::StrSplit(parts[1], ',');
    if (std::find(controllers.begin(), controllers.end(), "memory") != controllers.end()) {
      limit = std::min(limit, LimitOfGroup(mount / "memory", parts[2], "memory.limit_in_bytes"));
    }
  }
  return limit;
}

int64_t InstalledMemory(const std::string& root) {
  std::istringstream lines(ReadText(root + "/proc/meminfo"));
  std::string key;
  int64_t kilobytes = 0;
  while (lines >> key) {
    if (key == "MemTotal:" && lines >> kilobytes) return kilobytes * 1024;
    lines.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::numeric_limits<int64_t>::max();
}

}  // namespace

int64_t MemoryAllowed(const std::string& root) { return std::min(LimitOfGroups(root), InstalledMemory(root)); }

}  // namespace processor
