// SPDX-License-Identifier: Apache-2.0
// The overlays that live models share: models of one process that follow the same timeline from the same epoch on lay the
// same rows over tables with the same file.
//
// The first model that applies an epoch writes it; the others only move to it. What any of them may read is kept.
#ifndef PROCESSOR_LIVE_OVERLAY_GROUP_H_
#define PROCESSOR_LIVE_OVERLAY_GROUP_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "src/live/live_description.h"
#include "src/live/overlay_table.h"
#include "src/tables/delta_header.h"

namespace processor {

/// An overlay, and the epochs at which it has a state. The group of its models owns it, and its lock guards it, apart from
/// what was counted.
class SharedOverlay {
 public:
  SharedOverlay(std::shared_ptr<OverlayTable> table, const ChainHash& chain) : table_(std::move(table)) {
    states_.emplace_back(0, chain);
    CountMemory();
  }

  const std::shared_ptr<OverlayTable>& table() const { return table_; }
  /// The newest epoch that was written; epochs count from that of the file.
  uint32_t newest() const { return states_.back().first; }
  /// Whether it has the state at an epoch of a history, and still keeps it.
  bool Has(uint32_t epoch, const ChainHash& chain) const;
  /// Makes the next call of Add() need no memory. \throws std::bad_alloc
  void Reserve() { states_.reserve(states_.size() + 1); }
  /// Adds the state at an epoch after all others.
  void Add(uint32_t epoch, const ChainHash& chain) { states_.emplace_back(epoch, chain); }
  /// Passes on who may read, and forgets states that are no longer kept.
  void SetReaders(const OverlayTable::Readers& readers);

  /// Counts what it takes. To be called after changes, before the lock is given back.
  void CountMemory();
  /// Returns the versions and the memory [bytes] that were counted last. Any thread may call, without a lock.
  uint64_t counted_rows() const { return counted_rows_.load(std::memory_order_relaxed); }
  uint64_t counted_bytes() const { return counted_bytes_.load(std::memory_order_relaxed); }

 private:
  const std::shared_ptr<OverlayTable> table_;
  std::vector<std::pair<uint32_t, ChainHash>> states_;  // ascending epochs; not empty
  std::atomic<uint64_t> counted_rows_{0}, counted_bytes_{0};
};

/// All functions but Of() and mutex() need the lock.
class OverlayGroup {
 public:
  /// Returns the group of the models of this process that follow a timeline and begin as the description says.
  static std::shared_ptr<OverlayGroup> Of(const std::string& timeline, const LiveDescription& description);

  /// Held by a model while it changes overlays, or what it reads of them; taken after the lock of the model. A model that
  /// is loaded in idle time may have no CPU while it holds it, so nobody may wait for it who reports or who rolls back.
  std::mutex& mutex() { return mutex_; }

  /// Returns the overlay of a table; if no model has it yet, `own`, to which nothing was written.
  std::shared_ptr<SharedOverlay> Share(const LiveDescription::Table& table, std::shared_ptr<OverlayTable> own,
                                       const ChainHash& chain);

  /// Returns the number of the next generation of views.
  uint64_t NextGeneration() { return ++generation_; }
  /// Sets the oldest epoch and generation of a model. Only the first time, as of the next function, needs memory.
  /// \throws std::bad_alloc
  void SetReader(const void* model, uint32_t oldest_epoch, uint64_t oldest_generation);
  /// Sets that a model reads none of these overlays at present.
  void SetReadsNothing(const void* model) { SetReader(model, UINT32_MAX, UINT64_MAX); }
  void RemoveReader(const void* model) { readers_.erase(model); }
  OverlayTable::Readers Readers() const;

 private:
  struct Reader {
    uint32_t epoch;
    uint64_t generation;
  };

  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<SharedOverlay>> overlays_;  // by table file, source and kind of keys
  std::map<const void*, Reader> readers_;
  uint64_t generation_ = 0;
};

}  // namespace processor

#endif  // PROCESSOR_LIVE_OVERLAY_GROUP_H_
