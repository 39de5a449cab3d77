// SPDX-License-Identifier: Apache-2.0
#include "src/host/files/port_claim.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace processor {
namespace {

namespace fs = std::filesystem;

constexpr char kAll[] = "any";
// Another process holds the lock exclusively only while it writes a line.
constexpr int kTries = 200;
constexpr useconds_t kPauseUs = 10'000;

// Returns "any", the canonical text of an address, or a name in lower case; "" if it is none of these.
std::string Usual(const std::string& address) {
  char bytes[sizeof(in6_addr)], text[INET6_ADDRSTRLEN];
  const int family = absl::StrContains(address, ':') ? AF_INET6 : AF_INET;
  if (inet_pton(family, address.c_str(), bytes) != 1 || inet_ntop(family, bytes, text, sizeof text) == nullptr) {
    const bool is_name = address.size() <= 200 && std::all_of(address.begin(), address.end(), [](char c) {
                           return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.';
                         });
    return is_name ? absl::AsciiStrToLower(address) : "";
  }
  const std::string usual = text;
  return usual == "0.0.0.0" || usual == "::" ? kAll : usual;
}

std::string FileOf(const std::string& folder, const std::string& address, int port) {
  return absl::StrCat(folder, "/port-", port, "-", address, ".lock");
}

// Makes the folder, and refuses one that belongs to another user.
absl::Status MakeOwnFolder(const std::string& folder) {
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return FileError(folder, "cannot be made", errno);
  struct stat found;
  if (lstat(folder.c_str(), &found) != 0) return FileError(folder, "cannot be read", errno);
  if (!S_ISDIR(found.st_mode) || found.st_uid != geteuid()) {
    return absl::PermissionDeniedError(
        absl::StrCat("'", folder, "': belongs to another user, expected a folder of this user"));
  }
  return absl::OkStatus();
}

std::string OwnerIn(int file) {
  std::string text(4096, '\0');
  const ssize_t size = pread(file, text.data(), text.size(), 0);
  text.resize(size > 0 ? static_cast<size_t>(size) : 0);
  return std::string(absl::StripAsciiWhitespace(text));
}

absl::Status Taken(const std::string& address, int port, const std::string& owner, const std::string& ours) {
  return absl::AlreadyExistsError(absl::StrCat("port ", port, " at ", address, ": hosts of the state directory '",
                                               owner,
                                               "' serve there, expected a port "
                                               "of its own for '",
                                               ours, "'"));
}

// Takes a shared lock of a file that contains `ours`, and writes `ours` to it first if nobody holds the lock.
absl::Status Share(const std::string& path, const std::string& address, int port, const std::string& ours, File* held) {
  for (int i = 0; i < kTries; ++i) {
    File file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file.is_open()) return FileError(path, "cannot be opened", errno);
    if (flock(file.get(), LOCK_EX | LOCK_NB) == 0) {
      const std::string line = ours + "\n";
      if (ftruncate(file.get(), 0) != 0 || pwrite(file.get(), line.data(), line.size(), 0) < 0) {
        return FileError(path, "cannot be written", errno);
      }
    }
    // Another process may get the lock before it is shared, so the file is read again.
    if (flock(file.get(), LOCK_SH | LOCK_NB) == 0) {
      const std::string owner = OwnerIn(file.get());
      if (owner != ours) return Taken(address, port, owner, ours);
      *held = std::move(file);
      return absl::OkStatus();
    }
    if (errno != EWOULDBLOCK) return FileError(path, "cannot be locked", errno);
    usleep(kPauseUs);
  }
  return absl::UnavailableError(absl::StrCat("'", path, "': locked by another process, expected so only for a moment"));
}

// Fails if the port is claimed under another address that collides with this one.
absl::Status CheckOthers(const std::string& folder, const std::string& address, int port, const std::string& ours) {
  const std::string prefix = absl::StrCat("port-", port, "-");
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!absl::StartsWith(name, prefix) || entry.path() == FileOf(folder, address, port)) continue;
    const bool is_all = entry.path() == FileOf(folder, kAll, port);
    if (!is_all && address != kAll) continue;
    const File file(open(entry.path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!file.is_open() || flock(file.get(), LOCK_EX | LOCK_NB) == 0) continue;  // nobody has it
    if (const std::string owner = OwnerIn(file.get()); owner != ours) return Taken(address, port, owner, ours);
  }
  return absl::OkStatus();
}

}  // namespace

std::string PortClaimFolder() {
  const char* const parent = access("/run/lock", W_OK) == 0 ? "/run/lock" : "/tmp";
  return absl::StrCat(parent, "/recprocessor-", geteuid());
}

absl::Status PortClaim::Take(const std::string& address, int port, const std::string& state_dir, PortClaim* claim) {
  const std::string usual = Usual(address);
  if (usual.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("address '", address.substr(0, 100), "', expected an IP address or a name"));
  }
  if (port < 1 || port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("port ", port, ", expected 1 to 65535"));
  }
  std::error_code error;
  const std::string ours = fs::canonical(state_dir, error).string();
  if (error) return FileError(state_dir, "cannot be read", error.value());
  const std::string folder = PortClaimFolder();
  if (absl::Status s = MakeOwnFolder(folder); !s.ok()) return s;
  PortClaim taken;
  if (absl::Status s = Share(FileOf(folder, usual, port), usual, port, ours, &taken.file_); !s.ok()) return s;
  if (absl::Status s = CheckOthers(folder, usual, port, ours); !s.ok()) return s;
  *claim = std::move(taken);
  return absl::OkStatus();
}

}  // namespace processor
