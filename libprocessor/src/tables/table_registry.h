// SPDX-License-Identifier: Apache-2.0
// Which tables this process has mapped, so that none is mapped twice.
#ifndef PROCESSOR_TABLES_TABLE_REGISTRY_H_
#define PROCESSOR_TABLES_TABLE_REGISTRY_H_

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "src/tables/table_file.h"

namespace processor {

class EmbeddingTable;

/// Keeps no table alive. All functions may be called from any thread.
class TableRegistry {
 public:
  /// What is known of one file. Whoever holds `mutex` may load it; the others wait rather than load it as well.
  struct Slot {
    std::mutex mutex;
    std::weak_ptr<const EmbeddingTable> table;
  };

  /// The one of the process; it lives until the end, since tables may be closed by destructors that run late.
  static TableRegistry& Global();

  std::shared_ptr<Slot> SlotOf(const FileIdentity& file);

  /// The table with this content that is in use; if there is none, `table` from now on. Files on several file systems
  /// cannot be one, but their mapping can.
  std::shared_ptr<const EmbeddingTable> Share(const std::string& content, std::shared_ptr<const EmbeddingTable> table);

 private:
  std::mutex mutex_;
  std::map<FileIdentity, std::shared_ptr<Slot>> files_;
  std::map<std::string, std::weak_ptr<const EmbeddingTable>> contents_;
};

}  // namespace processor

#endif  // PROCESSOR_TABLES_TABLE_REGISTRY_H_
