// SPDX-License-Identifier: Apache-2.0
#include "src/tables/table_registry.h"

#include <utility>

namespace processor {

TableRegistry& TableRegistry::Global() {
  static auto* const registry = new TableRegistry;
  return *registry;
}

std::shared_ptr<TableRegistry::Slot> TableRegistry::SlotOf(const FileIdentity& file, const std::string& storage) {
  std::lock_guard<std::mutex> lock(mutex_);
  // What nobody uses any more goes when something else comes.
  for (auto it = files_.begin(); it != files_.end();) {
    bool unused = it->second.use_count() == 1;
    if (unused) {
      std::lock_guard<std::mutex> slot_lock(it->second->mutex);
      unused = it->second->table.expired();
    }
    it = unused ? files_.erase(it) : std::next(it);
  }
  std::shared_ptr<Slot>& slot = files_[{file, storage}];
  if (slot == nullptr) slot = std::make_shared<Slot>();
  return slot;
}

std::shared_ptr<const EmbeddingTable> TableRegistry::Share(const std::string& content,
                                                           std::shared_ptr<const EmbeddingTable> table) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto it = contents_.begin(); it != contents_.end();) {
    it = it->second.expired() ? contents_.erase(it) : std::next(it);
  }
  std::weak_ptr<const EmbeddingTable>& known = contents_[content];
  if (std::shared_ptr<const EmbeddingTable> found = known.lock()) return found;
  known = table;
  return table;
}

}  // namespace processor
