// SPDX-License-Identifier: Apache-2.0
#include "src/tables/resident_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace processor {
namespace {

constexpr size_t kContentDigits = 64;
constexpr char kTurn[] = ".loading";
constexpr char kNewRecord[] = ".new.";
constexpr char kMemfdPath[] = "/memfd:";
constexpr int kOwnFile = O_CLOEXEC | O_NOFOLLOW;

std::string DefaultFolder() {
  const char* const runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime == '/') return absl::StrCat(runtime, "/recprocessor-tables");
  return absl::StrCat("/tmp/recprocessor-tables-", geteuid());
}

// Whether a file is a record: CONTENT.PROCESS.NUMBER. Nothing else is read or removed.
bool IsRecord(const std::string& name) {
  const std::vector<std::string> parts = absl::StrSplit(name, '.');
  uint64_t process = 0, number = 0;
  return parts.size() == 3 && parts[0].size() == kContentDigits &&
         parts[0].find_first_not_of("0123456789abcdef") == std::string::npos && absl::SimpleAtoi(parts[1], &process) &&
         absl::SimpleAtoi(parts[2], &number);
}

int64_t ModifiedNs(const struct stat& found) {
  return int64_t{found.st_mtim.tv_sec} * 1000000000 + found.st_mtim.tv_nsec;
}

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(opendir(folder.c_str()), closedir);
  if (listing == nullptr) return names;
  while (const dirent* entry = readdir(listing.get())) names.emplace_back(entry->d_name);
  return names;
}

// Opens what a record refers to, if it is memory of this user.
int OpenOffered(const std::string& record) {
  const std::vector<std::string> parts = absl::StrSplit(record, ' ');
  int64_t process = 0, number = 0;
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &process) || !absl::SimpleAtoi(parts[1], &number)) return -1;
  if (process <= 0 || number < 0) return -1;
  const std::string link = absl::StrCat("/proc/", process, "/fd/", number);
  // Nothing else is touched: a file might be on a server that does not answer.
  char target[sizeof(kMemfdPath)] = {};
  const ssize_t length = readlink(link.c_str(), target, sizeof(target));
  if (length <= 0 || !absl::StartsWith(std::string_view(target, static_cast<size_t>(length)), kMemfdPath)) return -1;
  const int path = open(link.c_str(), O_PATH | O_CLOEXEC);
  if (path < 0) return -1;
  struct stat found = {};
  int opened = -1;
  if (fstat(path, &found) == 0 && S_ISREG(found.st_mode) && found.st_uid == geteuid()) {
    opened = open(absl::StrCat("/proc/self/fd/", path).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  }
  close(path);
  return opened;
}

// Returns the text of a record of a process that lives; removes the others.
std::string ReadRecord(const std::string& path) {
  const int record = open(path.c_str(), O_RDONLY | kOwnFile | O_NONBLOCK);
  if (record < 0) return "";
  struct stat found = {};
  char text[64] = {};
  ssize_t size = 0;
  if (fstat(record, &found) == 0 && S_ISREG(found.st_mode) && found.st_uid == geteuid()) {
    if (flock(record, LOCK_SH | LOCK_NB) == 0) {
      unlink(path.c_str());
    } else {
      size = read(record, text, sizeof(text));
    }
  }
  close(record);
  return std::string(text, static_cast<size_t>(size < 0 ? 0 : size));
}

}  // namespace

LockedFile::LockedFile(int descriptor, std::string path)
    : descriptor_(descriptor), process_(getpid()), path_(std::move(path)) {}

LockedFile::~LockedFile() {
  if (descriptor_ < 0) return;
  if (process_ == getpid()) unlink(path_.c_str());
  close(descriptor_);
}

LockedFile::LockedFile(LockedFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), process_(other.process_), path_(std::move(other.path_)) {}

LockedFile& LockedFile::operator=(LockedFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(process_, other.process_);
  std::swap(path_, other.path_);
  return *this;
}

void LockedFile::Touch() const {
  if (descriptor_ >= 0) futimens(descriptor_, nullptr);
}

absl::Status ResidentFolder::Open(const std::string& path, ResidentFolder* folder) {
  folder->path_ = path.empty() ? DefaultFolder() : path;
  const auto named = [&](const char* what) { return absl::StrCat("folder '", folder->path_, "': ", what); };
  if (mkdir(folder->path_.c_str(), 0700) != 0 && errno != EEXIST) {
    return absl::UnavailableError(named(std::strerror(errno)));
  }
  struct stat found = {};
  if (lstat(folder->path_.c_str(), &found) != 0) return absl::UnavailableError(named(std::strerror(errno)));
  if (!S_ISDIR(found.st_mode) || found.st_uid != geteuid() || (found.st_mode & 022) != 0) {
    return absl::FailedPreconditionError(
        named("expected a folder that belongs to this user, and to which no others may write"));
  }
  return absl::OkStatus();
}

bool ResidentFolder::Find(const std::string& content, const std::function<bool(int descriptor)>& take) const {
  for (const std::string& name : NamesIn(path_)) {
    if (!IsRecord(name)) continue;
    const std::string record = ReadRecord(absl::StrCat(path_, "/", name));
    if (record.empty() || !absl::StartsWith(name, absl::StrCat(content, "."))) continue;
    const int opened = OpenOffered(record);
    if (opened >= 0 && take(opened)) return true;
  }
  return false;
}

absl::Status ResidentFolder::Offer(const std::string& content, int descriptor, LockedFile* record) const {
  static std::atomic<uint64_t> count{0};
  const std::string name = absl::StrCat(content, ".", getpid(), ".", count++);
  const std::string path = absl::StrCat(path_, "/", name), unfinished = absl::StrCat(path_, "/", kNewRecord, name);
  // What a process with the same number has left.
  unlink(unfinished.c_str());
  const int made = open(unfinished.c_str(), O_RDWR | O_CREAT | O_EXCL | kOwnFile, 0600);
  const std::string text = absl::StrCat(getpid(), " ", descriptor);
  if (made < 0 || flock(made, LOCK_EX | LOCK_NB) != 0 ||
      write(made, text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      rename(unfinished.c_str(), path.c_str()) != 0) {
    const int error = errno;
    if (made >= 0) close(made);
    unlink(unfinished.c_str());
    return absl::UnavailableError(absl::StrCat("folder '", path_, "': ", std::strerror(error)));
  }
  *record = LockedFile(made, path);
  return absl::OkStatus();
}

bool ResidentFolder::TakeTurn(const std::string& content, LockedFile* turn, int64_t* touched_ns) const {
  *touched_ns = 0;
  const std::string path = absl::StrCat(path_, "/", content, kTurn);
  for (;;) {
    const int file = open(path.c_str(), O_RDWR | O_CREAT | kOwnFile, 0600);
    struct stat opened = {}, named = {};
    // Without locks there are no turns, and each process loads.
    if (file < 0 || fstat(file, &opened) != 0) {
      if (file >= 0) close(file);
      return true;
    }
    if (flock(file, LOCK_EX | LOCK_NB) != 0) {
      const bool is_taken = errno == EWOULDBLOCK;
      *touched_ns = ModifiedNs(opened);
      close(file);
      return !is_taken;
    }
    // Whoever had the turn may have removed the file before it was locked here.
    if (stat(path.c_str(), &named) == 0 && named.st_ino == opened.st_ino && named.st_dev == opened.st_dev) {
      *turn = LockedFile(file, path);
      turn->Touch();
      return true;
    }
    close(file);
  }
}

}  // namespace processor
