// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/version/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace processor {
namespace {

namespace fs = std::filesystem;

// The folder may change while it is read; files that have vanished are skipped.
std::vector<fs::directory_entry> Entries(const fs::path& dir) {
  std::vector<fs::directory_entry> entries;
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) entries.push_back(*it);
  return entries;
}

bool HoldsCheckpointFile(const fs::path& dir) {
  std::error_code error;
  return fs::is_regular_file(dir / "checkpoint", error);
}

fs::path NewestFolder(const fs::path& dir) {
  fs::path newest;
  fs::file_time_type newest_time{};
  for (const fs::directory_entry& entry : Entries(dir)) {
    std::error_code error;
    if (!entry.is_directory(error) || !HoldsCheckpointFile(entry.path())) continue;
    const fs::file_time_type time = entry.last_write_time(error);
    if (error) continue;
    // If times are equal, the later name wins, so that the choice does not depend on the order of the folder.
    if (newest.empty() || time > newest_time || (time == newest_time && entry.path() > newest)) {
      newest = entry.path();
      newest_time = time;
    }
  }
  if (newest.empty() && HoldsCheckpointFile(dir)) newest = dir;
  return newest;
}

// Returns the step in "model.ckpt-1200.index"; -1 if the name has another form.
int64_t StepOfIndex(const std::string& name) {
  if (!absl::EndsWith(name, ".index")) return -1;
  const std::string stem = name.substr(0, name.size() - 6);
  const size_t dash = stem.rfind('-');
  if (dash == std::string::npos || dash + 1 == stem.size()) return -1;
  int64_t step = -1;
  const char* end = stem.data() + stem.size();
  const auto [parsed, error] = std::from_chars(stem.data() + dash + 1, end, step);
  return error == std::errc() && parsed == end && step >= 0 ? step : -1;
}

// Returns whether all shards of "<prefix>.data-00000-of-00003" exist. Copied folders may have the index before them.
bool IsComplete(const fs::path& prefix) {
  const std::string stem = prefix.filename().string() + ".data-";
  std::set<int> shards;
  int total = -1;
  for (const fs::directory_entry& entry : Entries(prefix.parent_path())) {
    const std::string name = entry.path().filename().string();
    if (!absl::StartsWith(name, stem) || name.size() != stem.size() + 14) continue;
    int shard = -1, of = -1;
    std::from_chars(name.data() + stem.size(), name.data() + stem.size() + 5, shard);
    std::from_chars(name.data() + stem.size() + 9, name.data() + name.size(), of);
    if (shard < 0 || of <= 0) continue;
    total = std::max(total, of);
    shards.insert(shard);
  }
  return total > 0 && static_cast<int>(shards.size()) >= total;
}

// The prefixes of checkpoints, by their steps.
using Prefixes = std::vector<std::pair<int64_t, fs::path>>;

void AddPrefixes(const fs::path& folder, Prefixes* found) {
  for (const fs::directory_entry& entry : Entries(folder)) {
    const int64_t step = StepOfIndex(entry.path().filename().string());
    if (step >= 0) found->emplace_back(step, entry.path().parent_path() / entry.path().stem());
  }
}

// Finds the complete checkpoint with the largest step after `after`. `incomplete`: raised to a later one without data.
bool FindComplete(Prefixes found, int64_t after, int64_t* step, std::string* prefix, int64_t* incomplete) {
  std::sort(found.rbegin(), found.rend());
  for (const auto& [found_step, found_prefix] : found) {
    if (found_step <= after) break;
    if (!IsComplete(found_prefix)) {
      *incomplete = std::max(*incomplete, found_step);
      continue;
    }
    *step = found_step;
    *prefix = found_prefix.string();
    return true;
  }
  return false;
}

}  // namespace

int64_t StepOfCheckpoint(const std::string& prefix) {
  return StepOfIndex(fs::path(prefix).filename().string() + ".index");
}

absl::Status FindCheckpoint(const std::string& dir, Checkpoint* checkpoint) {
  std::error_code error;
  if (!fs::is_directory(dir, error)) {
    return absl::NotFoundError(absl::StrCat("checkpoint_dir '", dir, "': no such folder"));
  }
  const fs::path folder = NewestFolder(dir);
  if (folder.empty()) {
    return absl::NotFoundError(absl::StrCat("checkpoint_dir '", dir, "': no folder with a file 'checkpoint' in it"));
  }
  Prefixes full, incremental;
  AddPrefixes(folder, &full);
  Checkpoint found;
  if (!FindComplete(std::move(full), /*after=*/-1, &found.step, &found.prefix, &found.incomplete_step)) {
    return absl::NotFoundError(
        absl::StrCat("checkpoint_dir '", dir, "': no complete checkpoint in '", folder.string(), "'"));
  }
  // The original's code reads the first place, its documentation names the second.
  for (const char* name : {".incremental_checkpoint", ".incremental_ckpt"}) AddPrefixes(folder / name, &incremental);
  FindComplete(std::move(incremental), found.step, &found.incremental_step, &found.increment, &found.incomplete_step);
  *checkpoint = std::move(found);
  return absl::OkStatus();
}

}  // namespace processor
