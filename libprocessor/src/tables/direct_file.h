// SPDX-License-Identifier: Apache-2.0
// A file that is read past the page cache, so that its rows take no other memory than a cache of them.
#ifndef PROCESSOR_TABLES_DIRECT_FILE_H_
#define PROCESSOR_TABLES_DIRECT_FILE_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "src/tables/table_file.h"

namespace processor {

/// Owns a descriptor. Any thread may read from it.
class DirectFile {
 public:
  /// Opens a file a second time, with O_DIRECT. File systems without it are read through the page cache, which is told to
  /// drop the pages; the log says so.
  /// \return UNAVAILABLE if the file cannot be opened, or is another one now.
  static absl::Status Open(const TableFile& file, std::unique_ptr<const DirectFile>* direct);
  ~DirectFile();
  DirectFile(const DirectFile&) = delete;
  DirectFile& operator=(const DirectFile&) = delete;

  int descriptor() const { return descriptor_; }
  bool is_direct() const { return is_direct_; }
  /// What offsets, sizes and addresses of reads have to be multiples of.
  uint32_t alignment() const { return alignment_; }
  uint64_t Down(uint64_t offset) const { return offset / alignment_ * alignment_; }
  uint64_t Up(uint64_t offset) const { return (offset + alignment_ - 1) / alignment_ * alignment_; }

  /// Lets the page cache drop what was read.
  void Forget(uint64_t offset, uint64_t size) const;

 private:
  DirectFile() = default;

  int descriptor_ = -1;
  bool is_direct_ = false;
  uint32_t alignment_ = 4096;
};

}  // namespace processor

#endif  // PROCESSOR_TABLES_DIRECT_FILE_H_
