// SPDX-License-Identifier: Apache-2.0
// A file descriptor with one owner, and statuses for the errors of the file system.
#ifndef PROCESSOR_HOST_FILES_FILE_H_
#define PROCESSOR_HOST_FILES_FILE_H_

#include <unistd.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"

namespace processor {

/// Owns a file descriptor, which it closes.
class File {
 public:
  explicit File(int descriptor = -1) : descriptor_(descriptor) {}
  ~File() { Close(); }
  File(File&& other) noexcept : descriptor_(other.Release()) {}
  File& operator=(File&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }

  bool is_open() const { return descriptor_ >= 0; }
  int get() const { return descriptor_; }
  int Release() { return std::exchange(descriptor_, -1); }
  void Close() {
    if (is_open()) close(Release());
  }

 private:
  int descriptor_;
};

/// Makes a status such as "'/path': cannot be read: No such file or directory". `error` is an errno.
absl::Status FileError(std::string_view path, std::string_view what, int error);

/// Reads a whole file. Never blocks, even if the path names a FIFO or a device.
/// \return NOT_FOUND; INVALID_ARGUMENT if it is not a regular file of at most `most_bytes`; else the error of the file
///         system.
absl::Status ReadSmallFile(const std::string& path, int64_t most_bytes, std::string* text);

}  // namespace processor

#endif  // PROCESSOR_HOST_FILES_FILE_H_
