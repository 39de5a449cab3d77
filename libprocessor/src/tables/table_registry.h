// SPDX-License-Identifier: Apache-2.0
// The tables that this process has open, so that none is mapped or read twice.
#ifndef PROCESSOR_TABLES_TABLE_REGISTRY_H_
#define PROCESSOR_TABLES_TABLE_REGISTRY_H_

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "src/tables/table_file.h"

namespace processor {

class EmbeddingTable;

/// Refers to tables without keeping them alive. Any thread may call all functions.
class TableRegistry {
 public:
  /// One file. The thread that holds `mutex` may load it; the others wait for that instead of loading it again.
  struct Slot {
    std::mutex mutex;
    std::weak_ptr<const EmbeddingTable> table;
  };

  /// The registry of the process. It is never destroyed, because destructors that run late may close tables.
  static TableRegistry& Global();

  /// Returns the slot of a file for one kind of storage, the same one to all threads.
  std::shared_ptr<Slot> SlotOf(const FileIdentity& file, const std::string& storage);

  /// Returns the table in use that has this content; without one, registers and returns `table`. So equal files on
  /// different file systems share one mapping.
  std::shared_ptr<const EmbeddingTable> Share(const std::string& content, std::shared_ptr<const EmbeddingTable> table);

 private:
  std::mutex mutex_;
  std::map<std::pair<FileIdentity, std::string>, std::shared_ptr<Slot>> files_;
  std::map<std::string, std::weak_ptr<const EmbeddingTable>> contents_;
};

}  // namespace processor

#endif  // PROCESSOR_TABLES_TABLE_REGISTRY_H_
