// SPDX-License-Identifier: Apache-2.0
// A table in sealed memory, which the processes of a user share. Its file is not needed any more.
#ifndef PROCESSOR_TABLES_RESIDENT_TABLE_H_
#define PROCESSOR_TABLES_RESIDENT_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "src/tables/resident_folder.h"
#include "src/tables/resident_memory.h"
#include "src/tables/table_file.h"
#include "src/tables/table_header.h"

namespace processor {

/// Owns a share of the memory. The rows are at its beginning, then come the other sections and, to tell what it is, the name of
/// the content. Any thread may read.
class ResidentTable {
 public:
  /// Finds the memory of a table in this process or in others, or reads the file into memory and offers it to them. A file is
  /// known by its content if its name is the SHA-256 of it; others are not shared.
  /// `header_bytes` [256]. `folder`: as ResidentFolder::Open().
  /// \return as CopyTable() and ResidentMemory::Create(), with the name of the file.
  static absl::Status Open(const TableFile& file, const uint8_t* header_bytes, const TableHeader& header,
                           const std::string& folder, std::shared_ptr<const ResidentTable>* table);

  const uint8_t* rows() const { return memory_->data(); }
  const uint8_t* index() const { return memory_->data() + index_; }
  const uint8_t* key_offsets() const { return memory_->data() + key_offsets_; }
  const uint8_t* key_bytes() const { return memory_->data() + key_bytes_; }

  const ResidentMemory& memory() const { return *memory_; }
  /// Whether another process has read the file.
  bool is_received() const { return is_received_; }

 private:
  explicit ResidentTable(const TableHeader& header);

  absl::Status Load(const TableFile& file, const TableHeader& header, const std::string& content,
                    const LockedFile& turn);
  bool Receive(const ResidentFolder& folder, const std::string& content);
  absl::Status FindOrLoad(const TableFile& file, const TableHeader& header, const std::string& content,
                          const std::string& folder);

  uint64_t index_ = 0, key_offsets_ = 0, key_bytes_ = 0, name_ = 0;  // places in the memory
  uint64_t bytes_ = 0;
  std::unique_ptr<const ResidentMemory> memory_;
  bool is_received_ = false;
  LockedFile record_;  // closed before the memory
};

/// Whether the name of a file is the SHA-256 of its content, and ".emb".
bool IsNamedByHash(const std::string& name);

}  // namespace processor

#endif  // PROCESSOR_TABLES_RESIDENT_TABLE_H_
