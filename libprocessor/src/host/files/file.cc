// SPDX-License-Identifier: Apache-2.0
#include "src/host/files/file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"

namespace processor {

absl::Status FileError(std::string_view path, std::string_view what, int error) {
  const std::string message = absl::StrCat("'", path, "': ", what, ": ", std::strerror(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(message);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(message);
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
      return absl::ResourceExhaustedError(message);
    default:
      return absl::UnavailableError(message);
  }
}

absl::Status ReadSmallFile(const std::string& path, int64_t most_bytes, std::string* text) {
  const File file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file.is_open()) return FileError(path, "cannot be read", errno);
  struct stat found;
  if (fstat(file.get(), &found) != 0) return FileError(path, "cannot be read", errno);
  if (!S_ISREG(found.st_mode) || found.st_size > most_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("'", path, "': expected a file of at most ", most_bytes, " bytes"));
  }
  std::string read(static_cast<size_t>(found.st_size), '\0');
  for (size_t at = 0; at < read.size();) {
    const ssize_t got = pread(file.get(), &read[at], read.size() - at, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileError(path, "cannot be read", errno);
    if (got == 0) read.resize(at);  // the file has become shorter
    at += static_cast<size_t>(got);
  }
  *text = std::move(read);
  return absl::OkStatus();
}

}  // namespace processor
