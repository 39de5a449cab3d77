// SPDX-License-Identifier: Apache-2.0
// The files of a state directory: desired.json is read, those of one host are written, and its lock is held.
#ifndef PROCESSOR_HOST_FILES_STATE_DIRECTORY_H_
#define PROCESSOR_HOST_FILES_STATE_DIRECTORY_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace processor {

class StateDirectory {
 public:
  /// Makes the folder of the host in the state directory, which must be there, and takes its lock.
  /// \return NOT_FOUND, INVALID_ARGUMENT for an id that cannot be, ALREADY_EXISTS if another process or host has the lock, else what
  ///         the file system says.
  static absl::Status Open(const std::string& path, const std::string& host_id,
                           std::unique_ptr<StateDirectory>* directory);
  /// Gives the lock back.
  ~StateDirectory();
  StateDirectory(const StateDirectory&) = delete;
  StateDirectory& operator=(const StateDirectory&) = delete;

  const std::string& path() const { return path_; }
  /// The folder of the host.
  const std::string& host_path() const { return host_path_; }

  /// Reads desired.json if it is another file than at the last call, by inode, size and times: that works on every file
  /// system, unlike notifications. `changed`: whether `text` was written.
  /// \return NOT_FOUND once it is gone (if it was there before), or why it cannot be read; told again at every call.
  absl::Status ReadDesired(std::string* text, bool* changed);

  /// From now on a desired.json that is not there is told, also if it never was.
  void ExpectDesired() { expected_ = true; }

  /// Reads a file of the host; "" if it is not there or cannot be read.
  std::string ReadHostFile(const std::string& name) const;

  /// Replaces a file of the host, such that a reader sees the old one or the new one. `durable`: and that it outlives a
  /// loss of power.
  absl::Status WriteHostFile(const std::string& name, std::string_view text, bool durable) const;

 private:
  /// What tells one file from another that has taken its place, or that was written into.
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
