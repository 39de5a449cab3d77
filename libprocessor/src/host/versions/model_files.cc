// SPDX-License-Identifier: Apache-2.0
#include "src/host/versions/model_files.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "src/base/json_text.h"
#include "src/base/sha256.h"
#include "src/host/files/file.h"

namespace processor {
namespace {

constexpr size_t kChunk = size_t{4} << 20;
constexpr char kTable[] = ".emb";

using FolderId = std::pair<dev_t, ino_t>;

int64_t Nanoseconds(const timespec& time) { return int64_t{time.tv_sec} * 1000000000 + time.tv_nsec; }

bool IsFolder(const std::string& path, FolderId* id) {
  struct stat found;
  if (stat(path.c_str(), &found) != 0 || !S_ISDIR(found.st_mode)) return false;
  *id = {found.st_dev, found.st_ino};
  return true;
}

// Returns the names in a folder, sorted; none if it cannot be listed.
std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator entries(folder, error);
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    names.push_back(entries->path().filename().string());
  }
  if (error) names.clear();
  std::sort(names.begin(), names.end());
  return names;
}

absl::Status ListBelow(const std::string& folder, const std::string& prefix, std::set<FolderId> above,
                       std::vector<ModelFile>* files) {
  FolderId id;
  if (!IsFolder(folder, &id) || !above.insert(id).second) return absl::OkStatus();
  std::vector<std::string> folders;
  for (const std::string& name : NamesIn(folder)) {
    ModelFile file;
    file.path = absl::StrCat(folder, "/", name);
    file.name = prefix + name;
    FolderId inner;
    if (IsFolder(file.path, &inner)) {
      folders.push_back(name);
    } else if (stat(file.path.c_str(), &file.found) == 0) {
      files->push_back(std::move(file));
    } else {
      return FileError(file.path, "cannot be read", errno);
    }
  }
  for (const std::string& name : folders) {
    const absl::Status status =
        ListBelow(absl::StrCat(folder, "/", name), absl::StrCat(prefix, name, "/"), above, files);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status HashFile(const ModelFile& file, const std::function<bool()>& give_up, std::string* chunk, Sha256* sha256) {
  if (!S_ISREG(file.found.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat("'", file.path, "': no regular file, expected one"));
  }
  const File opened(open(file.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!opened.is_open()) return FileError(file.path, "cannot be read", errno);
  while (true) {
    if (give_up()) return absl::CancelledError("load: given up");
    const ssize_t got = read(opened.get(), chunk->data(), chunk->size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileError(file.path, "cannot be read", errno);
    if (got == 0) return absl::OkStatus();
    sha256->Update(std::string_view(chunk->data(), static_cast<size_t>(got)));
  }
}

}  // namespace

absl::Status ListModelFiles(const std::string& folder, std::vector<ModelFile>* files) {
  return ListBelow(folder, "", {}, files);
}

std::string SealOf(const std::vector<ModelFile>& files) {
  Sha256 seal;
  for (const ModelFile& file : files) {
    const int64_t changed = absl::EndsWith(file.name, kTable) ? 0 : Nanoseconds(file.found.st_ctim);
    seal.Update(file.name);
    seal.Update(std::string_view("\0", 1));
    seal.Update(absl::StrCat(int64_t{file.found.st_size}, " ", Nanoseconds(file.found.st_mtim), " ", changed, "\n"));
  }
  return seal.Finish();
}

absl::Status HashModelFiles(const std::vector<ModelFile>& files, const std::function<bool()>& give_up,
                            std::string* sha256) {
  Sha256 hash;
  std::string chunk(kChunk, '\0');
  for (const ModelFile& file : files) {
    hash.Update(absl::StrCat(file.name.size(), " ", int64_t{file.found.st_size}, " ", file.name));
    if (absl::Status s = HashFile(file, give_up, &chunk, &hash); !s.ok()) return s;
  }
  *sha256 = hash.Finish();
  return absl::OkStatus();
}

FileChecker::FileChecker(std::string record) : record_(std::move(record)) {
  std::ifstream file(record_);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  // If the record is damaged, the hashes are computed again from the models.
  const nlohmann::json kept = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!kept.is_object()) return;
  for (const auto& item : kept.items()) {
    const nlohmann::json& pair = item.value();
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string()) continue;
    known_[item.key()] = {pair[0].get<std::string>(), pair[1].get<std::string>()};
  }
}

absl::Status FileChecker::Check(const std::string& folder, const DesiredFiles& deployed,
                                const std::function<bool()>& give_up, std::string* seal) {
  seal->clear();
  if (deployed.sha256.empty()) return absl::OkStatus();
  std::vector<ModelFile> files;
  if (absl::Status s = ListModelFiles(folder, &files); !s.ok()) return s;
  *seal = SealOf(files);
  if (*seal == deployed.seal) return absl::OkStatus();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto known = known_.find(folder);
    if (known != known_.end() && known->second == std::make_pair(*seal, deployed.sha256)) return absl::OkStatus();
  }
  std::string found;
  if (absl::Status s = HashModelFiles(files, give_up, &found); !s.ok()) return s;
  if (found != deployed.sha256) {
    return absl::FailedPreconditionError(absl::StrCat("files of '", folder, "': SHA-256 ", found, " found, expected ",
                                                      deployed.sha256,
                                                      " as it was deployed; deploy what is there as another version"));
  }
  Remember(folder, *seal, found);
  return absl::OkStatus();
}

absl::Status FileChecker::Unchanged(const std::string& folder, const std::string& seal) {
  if (seal.empty()) return absl::OkStatus();
  std::vector<ModelFile> files;
  if (absl::Status s = ListModelFiles(folder, &files); !s.ok()) return s;
  if (SealOf(files) == seal) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("files of '", folder, "': written to while they were loaded, expected files at rest"));
}

void FileChecker::Remember(const std::string& folder, const std::string& seal, const std::string& sha256) {
  std::lock_guard<std::mutex> lock(mutex_);
  known_[folder] = {seal, sha256};
  nlohmann::json kept = nlohmann::json::object();
  std::error_code error;
  for (auto it = known_.begin(); it != known_.end();) {
    if (std::filesystem::exists(it->first, error)) {
      kept[it->first] = {it->second.first, it->second.second};
      ++it;
    } else {
      it = known_.erase(it);
    }
  }
  // Written to another file and renamed, so that readers never see a part. If the disk is full, files are hashed again.
  const std::string beside = record_ + ".new";
  std::ofstream file(beside);
  file << JsonText(kept) << "\n";
  file.close();
  if (file) std::filesystem::rename(beside, record_, error);
}

}  // namespace processor
