// SPDX-License-Identifier: Apache-2.0
#include "src/base/free_memory.h"

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
constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

std::string ReadText(const fs::path& path) {
  std::ifstream stream(path);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

// A file that holds one number; `otherwise` if it is none ("max"), or 0.
int64_t ReadNumber(const fs::path& path, int64_t otherwise) {
  int64_t number = 0;
  const std::string text = ReadText(path);
  return absl::SimpleAtoi(absl::StripAsciiWhitespace(text), &number) && number > 0 ? number : otherwise;
}

// Returns a line of a file such as "file 4096" or "MemTotal: 16 kB", by its key; `absent` without one.
int64_t EntryOf(const fs::path& path, std::string_view key, int64_t absent) {
  std::istringstream lines(ReadText(path));
  std::string found;
  int64_t number = 0;
  while (lines >> found) {
    if (found == key && lines >> number) return number;
    lines.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return absent;
}

// The files of a version of cgroups.
struct GroupFiles {
  const char* limit;
  const char* in_use;
  const char* caches[2];  // keys of memory.stat
};
constexpr GroupFiles kVersion2 = {"memory.max", "memory.current", {"active_file", "inactive_file"}};
constexpr GroupFiles kVersion1 = {
    "memory.limit_in_bytes", "memory.usage_in_bytes", {"total_active_file", "total_inactive_file"}};

MemoryGroup ReadGroup(const fs::path& group, const GroupFiles& files) {
  MemoryGroup found = {ReadNumber(group / files.limit, kNoLimit), ReadNumber(group / files.in_use, 0)};
  for (const char* cache : files.caches) found.in_use -= EntryOf(group / "memory.stat", cache, 0);
  found.in_use = std::max<int64_t>(0, found.in_use);
  return found;
}

}  // namespace

void ForEachMemoryGroup(const std::string& root, const std::function<void(const MemoryGroup&)>& visit) {
  const auto with_parents = [&visit](const fs::path& mount, std::string group, const GroupFiles& files) {
    visit(ReadGroup(mount, files));
    for (; group.size() > 1; group = fs::path(group).parent_path().string()) {
      visit(ReadGroup(fs::path(mount.string() + group), files));
    }
  };
  const fs::path mount = root + "/sys/fs/cgroup";
  for (std::string_view line : absl::StrSplit(ReadText(root + "/proc/self/cgroup"), '\n')) {
    // "0::/group" of v2, "7:memory:/group" of v1.
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    if (parts[1].empty()) with_parents(mount, parts[2], kVersion2);
    const std::vector<std::string_view> controllers = absl::StrSplit(parts[1], ',');
    if (std::find(controllers.begin(), controllers.end(), "memory") != controllers.end()) {
      with_parents(mount / "memory", parts[2], kVersion1);
    }
  }
}

int64_t MachineMemory(const std::string& root, std::string_view key) {
  const int64_t kilobytes = EntryOf(root + "/proc/meminfo", key, -1);
  return kilobytes < 0 ? kNoLimit : kilobytes * 1024;
}

int64_t MemoryFree(const std::string& root) {
  int64_t free = MachineMemory(root, "MemAvailable:");
  ForEachMemoryGroup(root, [&free](const MemoryGroup& group) {
    free = std::min(free, std::max<int64_t>(0, group.limit - group.in_use));
  });
  return free;
}

}  // namespace processor
