// SPDX-License-Identifier: Apache-2.0
// A folder in which the processes of a user find the memory of each other's tables.
//
// A process that has a table in memory writes a record: its process ID and the number of the descriptor. Others open
// /proc/PID/fd/NUMBER, which the kernel permits to processes of the same user; the process that offers it does nothing, so it
// may also be stopped. A record is locked as long as the process lives.
#ifndef PROCESSOR_TABLES_RESIDENT_FOLDER_H_
#define PROCESSOR_TABLES_RESIDENT_FOLDER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace processor {

/// Owns an open, locked file, and removes it; a process that was forked only closes it.
class LockedFile {
 public:
  LockedFile() = default;
  /// `descriptor`: of the file, open and locked.
  LockedFile(int descriptor, std::string path);
  ~LockedFile();
  LockedFile(LockedFile&& other) noexcept;
  LockedFile& operator=(LockedFile&& other) noexcept;

  bool is_open() const { return descriptor_ >= 0; }
  /// Tells those who wait for the lock that its owner gets on.
  void Touch() const;

 private:
  int descriptor_ = -1;
  int process_ = 0;
  std::string path_;
};

/// The name of a folder that is there. Contents are named by 64 hexadecimal digits. Files with other names
/// are left alone.
class ResidentFolder {
 public:
  /// Opens or makes a folder, which only this user may read.
  /// `path`: empty for `recprocessor-tables` in XDG_RUNTIME_DIR, or for a folder of the user in /tmp without it.
  /// \return FAILED_PRECONDITION if it belongs to another user, or others may write to it; UNAVAILABLE.
  static absl::Status Open(const std::string& path, ResidentFolder* folder);

  const std::string& path() const { return path_; }

  /// Opens the memory of a content that other processes offer, for reading, until `take` returns true. `take` owns the
  /// descriptor. Records of processes that are gone are removed.
  bool Find(const std::string& content, const std::function<bool(int descriptor)>& take) const;

  /// Offers memory of a content, until the record is closed. The descriptor must stay open until then.
  absl::Status Offer(const std::string& content, int descriptor, LockedFile* record) const;

  /// Takes the turn to load a content, so that processes that start together load it once. Meanwhile another one may have
  /// offered it.
  /// \return false if another process has the turn; `touched_ns` is then when it last got on.
  bool TakeTurn(const std::string& content, LockedFile* turn, int64_t* touched_ns) const;

 private:
  std::string path_;
};

}  // namespace processor

#endif  // PROCESSOR_TABLES_RESIDENT_FOLDER_H_
