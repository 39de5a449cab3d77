// SPDX-License-Identifier: Apache-2.0
// The file of a table or of a delta: opened, read and mapped into memory. Its loader owns it; one thread uses it.
#ifndef PROCESSOR_TABLES_TABLE_FILE_H_
#define PROCESSOR_TABLES_TABLE_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>

#include "absl/status/status.h"

namespace processor {

/// Identifies a file, as long as it is not written to.
struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t size = 0;
  int64_t modified_ns = 0;

  bool operator<(const FileIdentity& other) const {
    return std::tie(device, inode, size, modified_ns) <
           std::tie(other.device, other.inode, other.size, other.modified_ns);
  }
};

/// Reads all pages of mapped memory, which begins with a page.
void PrefaultPages(uint8_t* data, size_t size);

/// Unmaps memory in slices, so that other threads that map memory do not wait for long.
void UnmapInSlices(uint8_t* data, size_t size);

/// Owns mapped memory and unmaps it. Any thread may read the memory.
class TableMapping {
 public:
  TableMapping() = default;
  ~TableMapping();
  TableMapping(TableMapping&& other) noexcept;
  TableMapping& operator=(TableMapping&& other) noexcept;

  const uint8_t* data() const { return data_; }
  size_t size() const { return size_; }

  /// Reads all pages into memory, so that no request has to wait for them.
  void Prefault() const { PrefaultPages(data_, size_); }

 private:
  friend class TableFile;

  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

/// What errors call a file, what they expect, and what they advise.
struct FileTerms {
  const char* noun;
  const char* expected;
  const char* if_newer;
  const char* if_damaged;
};

constexpr FileTerms kTableTerms = {
    "table", "an embedding table",
    "update recprocessor, or make the artifact again with the graph-tools of this version",
    "copy the artifact again, or make it again with graph-tools fuse"};

/// Returns `status` with the name of a file before its message and what to do after it.
absl::Status NamedByFile(const absl::Status& status, const std::string& path, const FileTerms& terms = kTableTerms);

/// Owns an open file and closes it. Errors name the file and say what to do.
class TableFile {
 public:
  explicit TableFile(std::string path, const FileTerms& terms = kTableTerms) : path_(std::move(path)), terms_(terms) {}
  ~TableFile();
  TableFile(const TableFile&) = delete;
  TableFile& operator=(const TableFile&) = delete;

  /// \return NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT if it is not a regular file, or UNAVAILABLE.
  absl::Status Open();

  const std::string& path() const { return path_; }
  const FileIdentity& identity() const { return identity_; }

  /// Reads bytes without the mapping: a failing disk or a truncated file causes an error here, but a signal there.
  /// \return DATA_LOSS if the file is too short, UNAVAILABLE if it cannot be read.
  absl::Status Read(uint64_t offset, size_t size, uint8_t* bytes) const;

  /// Lets the page cache drop what was read.
  void Forget() const;

  /// Maps the whole file. \return RESOURCE_EXHAUSTED if that is not possible.
  absl::Status Map(TableMapping* mapping) const;

  /// Returns `status` with the name of the file before its message and what to do after it.
  absl::Status Named(const absl::Status& status) const { return NamedByFile(status, path_, terms_); }

 private:
  std::string path_;
  FileTerms terms_;
  FileIdentity identity_;
  int descriptor_ = -1;
};

}  // namespace processor

#endif  // PROCESSOR_TABLES_TABLE_FILE_H_
