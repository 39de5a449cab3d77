// SPDX-License-Identifier: Apache-2.0
#include "src/host/memory_budget.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace processor {
namespace {

namespace fs = std::filesystem;
constexpr char kTableSuffix[] = ".emb";
constexpr size_t kHashedName = 64 + sizeof(kTableSuffix) - 1;

int64_t SizeOf(const fs::path& path) {
  struct stat found;
  return stat(path.c_str(), &found) == 0 && S_ISREG(found.st_mode) ? static_cast<int64_t>(found.st_size) : 0;
}

// Calls `visit(path)` for every file of a folder; a folder that is not there has none.
template <typename Visit>
void ForEachFile(const fs::path& dir, Visit&& visit) {
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) visit(it->path());
}

void AddTable(const fs::path& path, MemoryEstimate* estimate) {
  struct stat found;
  if (stat(path.c_str(), &found) != 0) return;
  const std::string name = path.filename().string();
  const std::string key = name.size() == kHashedName ? name : absl::StrCat(found.st_dev, ":", found.st_ino);
  estimate->tables[key] = static_cast<int64_t>(found.st_size);
}

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

int64_t MemoryEstimate::total() const {
  int64_t bytes = own_bytes;
  for (const auto& [key, size] : tables) bytes += size;
  return bytes;
}

absl::Status EstimateMemory(const std::string& saved_model_dir, const std::string& checkpoint_dir,
                            MemoryEstimate* estimate) {
  *estimate = {};
  const fs::path dir(saved_model_dir);
  std::error_code error;
  if (!fs::is_directory(dir, error)) {
    return absl::NotFoundError(absl::StrCat("path '", saved_model_dir, "': no such folder, expected a SavedModel"));
  }
  estimate->own_bytes = SizeOf(dir / "saved_model.pb");
  if (checkpoint_dir.empty()) {
    ForEachFile(dir / "variables", [&](const fs::path& path) { estimate->own_bytes += SizeOf(path); });
  } else {
    // A folder of checkpoints keeps several: the largest file stands for the one that is loaded.
    int64_t largest = 0;
    ForEachFile(checkpoint_dir, [&](const fs::path& path) { largest = std::max(largest, SizeOf(path)); });
    estimate->own_bytes += largest;
  }
  ForEachFile(dir / "assets", [&](const fs::path& path) {
    if (absl::EndsWith(path.string(), kTableSuffix)) {
      AddTable(path, estimate);
    } else {
      estimate->own_bytes += SizeOf(path);
    }
  });
  return absl::OkStatus();
}

int64_t MemoryInUse(const std::vector<const MemoryEstimate*>& versions) {
  std::map<std::string, int64_t> tables;
  int64_t bytes = 0;
  for (const MemoryEstimate* version : versions) {
    bytes += version->own_bytes;
    tables.insert(version->tables.begin(), version->tables.end());
  }
  for (const auto& [key, size] : tables) bytes += size;
  return bytes;
}

int64_t MemoryToAdd(const std::vector<const MemoryEstimate*>& versions, const MemoryEstimate& another) {
  std::vector<const MemoryEstimate*> with = versions;
  with.push_back(&another);
  return MemoryInUse(with) - MemoryInUse(versions);
}

int64_t MemoryOfMachine(const std::string& root) {
  const int64_t bytes = std::min(LimitOfGroups(root), InstalledMemory(root));
  return bytes - bytes / 10;
}

}  // namespace processor
