// SPDX-License-Identifier: Apache-2.0
// The files of a state directory: reads desired.json, writes the files of one host, and holds that host's lock.
#ifndef PROCESSOR_HOST_FILES_STATE_DIRECTORY_H_
#define PROCESSOR_HOST_FILES_STATE_DIRECTORY_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace processor {

/// Owns the lock of a host. The host's control owns the object. For one thread, except for WriteHostFile().
class StateDirectory {
 public:
  /// Makes the folder of the host in the state directory, which must exist, and takes its lock.
  /// \return NOT_FOUND; INVALID_ARGUMENT for an id that is not allowed; ALREADY_EXISTS if another process or host has
  ///         the lock; else the error of the file system.
  static absl::Status Open(const std::string& path, const std::string& host_id,
                           std::unique_ptr<StateDirectory>* directory);
  /// Releases the lock.
  ~StateDirectory();
  StateDirectory(const StateDirectory&) = delete;
  StateDirectory& operator=(const StateDirectory&) = delete;

  const std::string& path() const { return path_; }
  /// The folder of the host.
  const std::string& host_path() const { return host_path_; }

  /// Reads desired.json if its inode, size or times differ from those at the last call, which works on every file
  /// system, unlike notifications. `changed`: whether `text` was written.
  /// \return NOT_FOUND, at every call, if the file was removed; or why it cannot be read.
  absl::Status ReadDesired(std::string* text, bool* changed);

  /// Makes ReadDesired() return NOT_FOUND also if the file has never existed.
  void ExpectDesired() { expected_ = true; }

  /// Reads a file of the host; returns "" if it does not exist or cannot be read.
  std::string ReadHostFile(const std::string& name) const;

  /// Replaces a file of the host atomically: a reader sees either the old content or the new one. `durable`: the new
  /// one also survives a loss of power.
  absl::Status WriteHostFile(const std::string& name, std::string_view text, bool durable) const;

 private:
  /// Changes whenever desired.json is replaced or written to.
  struct Stamp {
    uint64_t device = 0, inode = 0;
    int64_t size = -1, modified_ns = 0, changed_ns = 0;
    bool operator==(const Stamp& other) const;
  };

  StateDirectory(std::string path, std::string host_path) : path_(std::move(path)), host_path_(std::move(host_path)) {}

  const std::string path_;
  const std::string host_path_;
  int lock_ = -1;
  bool expected_ = false;
  Stamp seen_;
};

}  // namespace processor

#endif  // PROCESSOR_HOST_FILES_STATE_DIRECTORY_H_
