// SPDX-License-Identifier: Apache-2.0
#include "src/live/overlay_group.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace processor {

bool SharedOverlay::Has(uint32_t epoch, const ChainHash& chain) const {
  const auto found = std::lower_bound(states_.begin(), states_.end(), epoch,
                                      [](const auto& state, uint32_t wanted) { return state.first < wanted; });
  return found != states_.end() && found->first == epoch && found->second == chain;
}

void SharedOverlay::SetReaders(const OverlayTable::Readers& readers) {
  // The newest state stays, as the next one comes after it.
  const auto kept = std::find_if(states_.begin(), states_.end() - 1,
                                 [&](const auto& state) { return state.first >= readers.oldest_epoch; });
  states_.erase(states_.begin(), kept);
  table_->SetReaders(readers);
}

void SharedOverlay::CountMemory() {
  counted_rows_.store(table_->live_rows(), std::memory_order_relaxed);
  counted_bytes_.store(table_->bytes(), std::memory_order_relaxed);
}

std::shared_ptr<OverlayGroup> OverlayGroup::Of(const std::string& timeline, const LiveDescription& description) {
  static std::mutex mutex;
  static auto* const groups = new std::map<std::string, std::weak_ptr<OverlayGroup>>();
  const std::string key = absl::StrCat(timeline, "\n", HexText(description.lineage), "\n", description.epoch, "\n",
                                       HexText(description.chain));
  std::lock_guard<std::mutex> lock(mutex);
  for (auto it = groups->begin(); it != groups->end();) it = it->second.expired() ? groups->erase(it) : std::next(it);
  std::weak_ptr<OverlayGroup>& known = (*groups)[key];
  std::shared_ptr<OverlayGroup> group = known.lock();
  if (group == nullptr) {
    group = std::make_shared<OverlayGroup>();
    known = group;
  }
  return group;
}

std::shared_ptr<SharedOverlay> OverlayGroup::Share(const LiveDescription::Table& table,
                                                   std::shared_ptr<OverlayTable> own, const ChainHash& chain) {
  // A mapped file is one object in a process, whichever version opened it.
  const auto* const file = &own->base();
  const std::vector<int64_t>& rows = table.rows.rows;
  const std::string_view bytes(reinterpret_cast<const char*>(rows.data()), rows.size() * sizeof(int64_t));
  const std::string key = absl::StrCat(
      absl::Hex(reinterpret_cast<uintptr_t>(file)), "\n", static_cast<int>(table.key_kind), "\n", table.rows.first_row,
      "\n", table.rows.num_rows, "\n", std::hash<std::string_view>()(bytes), "\n", table.source);
  std::weak_ptr<SharedOverlay>& known = overlays_[key];
  std::shared_ptr<SharedOverlay> shared = known.lock();
  if (shared == nullptr) {
    shared = std::make_shared<SharedOverlay>(std::move(own), chain);
    known = shared;
  }
  return shared;
}

void OverlayGroup::SetReader(const void* model, uint32_t oldest_epoch, uint64_t oldest_generation) {
  readers_[model] = {oldest_epoch, oldest_generation};
}

OverlayTable::Readers OverlayGroup::Readers() const {
  OverlayTable::Readers readers;
  readers.oldest_epoch = UINT32_MAX;
  readers.generation = readers.oldest_generation = generation_;
  for (const auto& [model, reader] : readers_) {
    readers.oldest_epoch = std::min(readers.oldest_epoch, reader.epoch);
    readers.oldest_generation = std::min(readers.oldest_generation, reader.generation);
  }
  return readers;
}

}  // namespace processor
