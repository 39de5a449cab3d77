// SPDX-License-Identifier: Apache-2.0
#include "src/host/files/state_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <tuple>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "src/host/files/file.h"

namespace processor {
namespace {

// Larger than any desired.json; a wrong file must not fill the memory.
constexpr int64_t kMaxDesiredBytes = int64_t{64} << 20;

bool WriteAll(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

bool IsHostId(std::string_view id) {
  return !id.empty() && id.size() <= 64 && id.front() != '.' && std::all_of(id.begin(), id.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
  });
}

absl::Status TakeLock(const std::string& path, const std::string& host_id, int* lock) {
  File file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (file.get() < 0) return FileError(path, "cannot be opened", errno);
  if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return FileError(path, "cannot be locked", errno);
    char pid[32] = {};
    const ssize_t size = pread(file.get(), pid, sizeof pid - 1, 0);
    std::string_view owner(pid, size > 0 ? static_cast<size_t>(size) : 0);
    owner = absl::StripAsciiWhitespace(owner);
    return absl::AlreadyExistsError(absl::StrCat("host '", host_id, "': running in process ",
                                                 owner.empty() ? "unknown" : owner, ", expected an id of its own ('",
                                                 path, "' is locked)"));
  }
  // The number is for people; the lock decides.
  if (ftruncate(file.get(), 0) == 0) WriteAll(file.get(), absl::StrCat(getpid(), "\n"));
  *lock = file.Release();
  return absl::OkStatus();
}

}  // namespace

bool StateDirectory::Stamp::operator==(const Stamp& other) const {
  return std::tie(device, inode, size, modified_ns, changed_ns) ==
         std::tie(other.device, other.inode, other.size, other.modified_ns, other.changed_ns);
}

absl::Status StateDirectory::Open(const std::string& path, const std::string& host_id,
                                  std::unique_ptr<StateDirectory>* directory) {
  if (path.empty()) return absl::InvalidArgumentError("state_dir: empty, expected a folder");
  if (!IsHostId(host_id)) {
    return absl::InvalidArgumentError(
        absl::StrCat("host_id '", host_id.substr(0, 100),
                     "': expected 1 to 64 letters, digits, '-', '_' and '.', the first no '.'"));
  }
  const std::string host_path = absl::StrCat(path, "/hosts/", host_id);
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) {
    // If it were created here, a mistyped path would give a host that serves nothing and waits forever.
    return absl::NotFoundError(absl::StrCat("state_dir '", path, "': no such folder, expected one that is there"));
  }
  std::filesystem::create_directories(host_path, error);
  if (error) return FileError(host_path, "cannot be made", error.value());
  std::unique_ptr<StateDirectory> opened(new StateDirectory(path, host_path));
  if (absl::Status s = TakeLock(host_path + "/lock", host_id, &opened->lock_); !s.ok()) return s;
  *directory = std::move(opened);
  return absl::OkStatus();
}

StateDirectory::~StateDirectory() {
  if (lock_ >= 0) close(lock_);
}

absl::Status StateDirectory::ReadDesired(std::string* text, bool* changed) {
  *changed = false;
  const std::string path = path_ + "/desired.json";
  const File file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file.get() < 0) {
    // A host may start before desired.json is written.
    if (errno == ENOENT && seen_.size < 0 && !expected_) return absl::OkStatus();
    return FileError(path, "cannot be read", errno);
  }
  struct stat found;
  if (fstat(file.get(), &found) != 0) return FileError(path, "cannot be read", errno);
  const Stamp stamp = {found.st_dev, found.st_ino, static_cast<int64_t>(found.st_size),
                       int64_t{found.st_mtim.tv_sec} * 1000000000 + found.st_mtim.tv_nsec,
                       int64_t{found.st_ctim.tv_sec} * 1000000000 + found.st_ctim.tv_nsec};
  if (stamp == seen_) return absl::OkStatus();
  if (!S_ISREG(found.st_mode) || found.st_size > kMaxDesiredBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", path, "': expected a file of at most ", kMaxDesiredBytes, " bytes"));
  }
  std::string read(static_cast<size_t>(found.st_size), '\0');
  for (size_t at = 0; at < read.size();) {
    const ssize_t got = pread(file.get(), &read[at], read.size() - at, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileError(path, "cannot be read", errno);
    if (got == 0) read.resize(at);  // the file has become shorter; the next read will see that
    at += static_cast<size_t>(got);
  }
  seen_ = stamp;
  *text = std::move(read);
  *changed = true;
  return absl::OkStatus();
}

std::string StateDirectory::ReadHostFile(const std::string& name) const {
  const std::string path = absl::StrCat(host_path_, "/", name);
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return "";
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

absl::Status StateDirectory::WriteHostFile(const std::string& name, std::string_view text, bool durable) const {
  const std::string path = absl::StrCat(host_path_, "/", name);
  const std::string beside = absl::StrCat(host_path_, "/.", name, ".new");
  {
    const File file(open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (file.get() < 0) return FileError(beside, "cannot be opened", errno);
    if (!WriteAll(file.get(), text) || (durable && fsync(file.get()) != 0)) {
      const int error = errno;
      unlink(beside.c_str());
      return FileError(beside, "cannot be written", error);
    }
  }
  if (rename(beside.c_str(), path.c_str()) != 0) return FileError(path, "cannot be replaced", errno);
  if (durable) {
    const File folder(open(host_path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder.get() >= 0) fsync(folder.get());
  }
  return absl::OkStatus();
}

}  // namespace processor
