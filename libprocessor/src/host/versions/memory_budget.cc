// SPDX-License-Identifier: Apache-2.0
#include "src/host/versions/memory_budget.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "src/base/machine_memory.h"

namespace processor {
namespace {

namespace fs = std::filesystem;
constexpr char kTableSuffix[] = ".emb";
constexpr size_t kHashedName = 64 + sizeof(kTableSuffix) - 1;

int64_t FileSize(const fs::path& path) {
  struct stat found;
  return stat(path.c_str(), &found) == 0 && S_ISREG(found.st_mode) ? static_cast<int64_t>(found.st_size) : 0;
}

// Calls `visit(path)` for every file of a folder and its subfolders; an absent folder has none. Files that vanish
// meanwhile are skipped, and so are folders nested deeper than those of models, since links may form a circle.
template <typename Visit>
void ForEachFile(const fs::path& dir, Visit&& visit) {
  constexpr int kDeepest = 8;
  std::error_code error;
  fs::recursive_directory_iterator it(dir, fs::directory_options::follow_directory_symlink, error), end;
  for (; !error && it != end; it.increment(error)) {
    if (it.depth() >= kDeepest) it.disable_recursion_pending();
    visit(it->path());
  }
}

// Returns the size in bytes of the largest checkpoint in a folder, all shards together. Such a folder keeps several
// checkpoints, and one of them is loaded.
int64_t LargestCheckpoint(const fs::path& dir) {
  std::map<std::string, int64_t> checkpoints;
  ForEachFile(dir, [&](const fs::path& path) {
    // "model.ckpt-1200.data-00000-of-00003", "model.ckpt-1200.index"
    const std::string name = path.filename().string();
    size_t end = name.rfind(".data-");
    if (end == std::string::npos && absl::EndsWith(name, ".index")) end = name.rfind(".index");
    if (end != std::string::npos) checkpoints[(path.parent_path() / name.substr(0, end)).string()] += FileSize(path);
  });
  int64_t largest = 0;
  for (const auto& [prefix, bytes] : checkpoints) largest = std::max(largest, bytes);
  return largest;
}

void AddTable(const fs::path& path, MemoryEstimate* estimate) {
  struct stat found;
  if (stat(path.c_str(), &found) != 0) return;
  const std::string name = path.filename().string();
  const std::string key = name.size() == kHashedName ? name : absl::StrCat(found.st_dev, ":", found.st_ino);
  estimate->tables[key] = static_cast<int64_t>(found.st_size);
}

// Divides the memory of tiered tables as their files are. Versions that allow them as much share them.
void LimitTables(int64_t memory, std::map<std::string, int64_t>* tables) {
  int64_t all = 0;
  for (const auto& [key, size] : *tables) all += size;
  const double share = all <= memory ? 1 : static_cast<double>(memory) / static_cast<double>(all);
  std::map<std::string, int64_t> limited;
  for (const auto& [key, size] : *tables) {
    const auto bytes = static_cast<int64_t>(share * static_cast<double>(size));
    limited[absl::StrCat(key, " tiered ", bytes)] = bytes;
  }
  *tables = std::move(limited);
}

// Memory that is not the page cache of the same files, which other versions may map.
void TellApart(const char* tier, std::map<std::string, int64_t>* tables) {
  std::map<std::string, int64_t> named;
  for (const auto& [key, size] : *tables) named[absl::StrCat(key, " ", tier)] = size;
  *tables = std::move(named);
}

}  // namespace

int64_t MemoryEstimate::total() const {
  int64_t bytes = own_bytes;
  for (const auto& [key, size] : tables) bytes += size;
  for (const auto& [key, size] : overlays) bytes += size;
  return bytes;
}

absl::Status EstimateMemory(const std::string& saved_model_dir, const std::string& checkpoint_dir,
                            const TableOptions& tables, MemoryEstimate* estimate) {
  *estimate = {};
  const fs::path dir(saved_model_dir);
  std::error_code error;
  if (!fs::is_directory(dir, error)) {
    return absl::NotFoundError(absl::StrCat("path '", saved_model_dir, "': no such folder, expected a SavedModel"));
  }
  estimate->own_bytes = FileSize(dir / "saved_model.pb");
  if (checkpoint_dir.empty()) {
    ForEachFile(dir / "variables", [&](const fs::path& path) { estimate->own_bytes += FileSize(path); });
  } else {
    estimate->own_bytes += LargestCheckpoint(checkpoint_dir);
  }
  ForEachFile(dir / "assets", [&](const fs::path& path) {
    if (absl::EndsWith(path.string(), kTableSuffix)) {
      AddTable(path, estimate);
    } else {
      estimate->own_bytes += FileSize(path);
    }
  });
  if (tables.tier == TableTier::kTiered) LimitTables(tables.memory, &estimate->tables);
  if (tables.tier == TableTier::kResident) TellApart("resident", &estimate->tables);
  // The next checkpoint is loaded and warmed up beside the one that serves.
  if (!checkpoint_dir.empty()) estimate->own_bytes *= 2;
  return absl::OkStatus();
}

int64_t MemoryInUse(const std::vector<const MemoryEstimate*>& versions) {
  MemoryEstimate all;
  for (const MemoryEstimate* version : versions) {
    all.own_bytes += version->own_bytes;
    all.tables.insert(version->tables.begin(), version->tables.end());
    // They were counted one after the other, so the shared ones may differ.
    for (const auto& [key, size] : version->overlays) all.overlays[key] = std::max(all.overlays[key], size);
  }
  return all.total();
}

int64_t MemoryToAdd(const std::vector<const MemoryEstimate*>& versions, const MemoryEstimate& another) {
  std::vector<const MemoryEstimate*> with = versions;
  with.push_back(&another);
  return MemoryInUse(with) - MemoryInUse(versions);
}

int64_t MemoryOfMachine(const std::string& root) {
  const int64_t bytes = MemoryAllowed(root);
  return bytes - bytes / 10;
}

}  // namespace processor
