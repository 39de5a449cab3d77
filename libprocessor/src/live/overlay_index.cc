// SPDX-License-Identifier: Apache-2.0
#include "src/live/overlay_index.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace processor {
namespace {

constexpr size_t kTextChunkBytes = size_t{64} << 10;

}  // namespace

OverlayIndex::OverlayIndex(size_t capacity, bool strings)
    : capacity_(std::max<size_t>(capacity, 64)),
      // Seven tenths are used at most, so that most keys are found in the line in which the search begins.
      places_(capacity_ * 10 / 7 + 1),
      entries_(MapEntries(places_ * sizeof(Entry)), {places_ * sizeof(Entry)}),
      texts_(strings ? places_ : 0) {}

// Pages of zeros are empty entries.
OverlayIndex::Entry* OverlayIndex::MapEntries(size_t bytes) {
  constexpr size_t kHugePage = size_t{2} << 20;
  void* const mapped = MapMemory(bytes, bytes < kHugePage ? alignof(Entry) : kHugePage);
  if (mapped == nullptr) throw std::bad_alloc();
  // Searches jump; with small pages, each would also look for the page.
  if (bytes >= kHugePage) madvise(mapped, bytes, MADV_HUGEPAGE);
  return static_cast<Entry*>(mapped);
}

bool OverlayIndex::Is(size_t place, uint64_t key, std::string_view text) const {
  if (entries_[place].key != key) return false;
  return texts_.empty() || TextOf(place) == text;
}

const std::atomic<VersionRef>* OverlayIndex::Find(uint64_t key, std::string_view text) const {
  for (size_t place = HomeBucket(key, places_);; place = Next(place)) {
    if (entries_[place].newest.load(std::memory_order_acquire) == 0) return nullptr;
    if (Is(place, key, text)) return &entries_[place].newest;
  }
}

VersionRef OverlayIndex::Put(uint64_t key, std::string_view text, VersionRef version) noexcept {
  size_t place = HomeBucket(key, places_);
  for (; entries_[place].newest.load(std::memory_order_relaxed) != 0; place = Next(place)) {
    if (!Is(place, key, text)) continue;
    std::atomic<VersionRef>& newest = entries_[place].newest;
    const VersionRef before = newest.load(std::memory_order_relaxed);
    newest.store(version, std::memory_order_release);
    if (before != kDroppedKey) return before;
    --dropped_;
    return 0;
  }
  entries_[place].key = key;
  if (!texts_.empty()) {
    if (!text.empty()) std::memcpy(free_text_, text.data(), text.size());
    texts_[place] = {free_text_, text.size()};
    free_text_ += text.size();
    free_text_bytes_ -= text.size();
  }
  ++size_;
  entries_[place].newest.store(version, std::memory_order_release);
  return 0;
}

void OverlayIndex::Drop(uint64_t key, std::string_view text) noexcept {
  ForEach(key, [&](uint64_t, std::string_view found, std::atomic<VersionRef>* newest) {
    if (found == text) newest->store(kDroppedKey, std::memory_order_release);
  });
}

void OverlayIndex::ReserveText(size_t bytes) {
  if (texts_.empty() || bytes <= free_text_bytes_) return;
  const size_t chunk = std::max(bytes, kTextChunkBytes);
  chunks_.emplace_back(new char[chunk]);
  free_text_ = chunks_.back().get();
  free_text_bytes_ = chunk;
  text_bytes_ += chunk;
}

std::unique_ptr<OverlayIndex> OverlayIndex::Copy(size_t capacity) const {
  auto copy = std::make_unique<OverlayIndex>(capacity, !texts_.empty());
  for (size_t place = 0; place < places_; ++place) {
    const VersionRef newest = entries_[place].newest.load(std::memory_order_relaxed);
    if (newest == 0 || newest == kDroppedKey) continue;
    copy->ReserveText(TextOf(place).size());
    copy->Put(entries_[place].key, TextOf(place), newest);
  }
  return copy;
}

}  // namespace processor
