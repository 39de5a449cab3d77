// SPDX-License-Identifier: Apache-2.0
// A hash table from keys to the newest versions of their rows, which one thread writes while others search.
#ifndef PROCESSOR_LIVE_OVERLAY_INDEX_H_
#define PROCESSOR_LIVE_OVERLAY_INDEX_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "src/base/mapped_memory.h"
#include "src/live/changed_rows.h"
#include "src/tables/table_index.h"

namespace processor {

/// A version of epoch 0, which no row has: of a key that was deleted, or never had a version.
constexpr VersionRef kDroppedKey = 2;

/// Keys are numbers, or strings, whose numbers are their fingerprints. Entries are only added; those of dropped keys stay
/// until a copy leaves them out.
class OverlayIndex {
 public:
  /// `capacity`: the entries that fit. \throws std::bad_alloc
  OverlayIndex(size_t capacity, bool strings);

  /// Returns how many entries there are, and how many of them have no version.
  size_t size() const { return size_; }
  size_t dropped() const { return dropped_; }
  size_t capacity() const { return capacity_; }
  size_t bytes() const { return places_ * sizeof(Entry) + texts_.size() * sizeof(texts_[0]) + text_bytes_; }

  /// Prefetches what Find() will read first. Any thread.
  void Fetch(uint64_t key) const { __builtin_prefetch(&entries_[HomeBucket(key, places_)]); }

  /// Finds the newest version of a key: null if there is no entry. Any thread.
  const std::atomic<VersionRef>* Find(uint64_t key, std::string_view text = {}) const;

  // Only the writer:
  /// Makes `version` the newest one of a key, for which ReserveText() was called before. \return the version before, or 0.
  VersionRef Put(uint64_t key, std::string_view text, VersionRef version) noexcept;
  /// Calls `change` with each key that has this number, its bytes, and its newest version; it may store another one.
  template <typename Change>
  void ForEach(uint64_t key, Change&& change) {
    for (size_t place = HomeBucket(key, places_);; place = Next(place)) {
      if (entries_[place].newest.load(std::memory_order_relaxed) == 0) return;
      if (entries_[place].key == key) Visit(place, change);
    }
  }
  /// The same with `count` places from one on, of all of which there are places().
  template <typename Change>
  void ForEachIn(size_t first, size_t count, Change&& change) {
    for (size_t place = first; place < first + count; ++place) {
      const VersionRef newest = entries_[place].newest.load(std::memory_order_relaxed);
      if (newest != 0 && newest != kDroppedKey) Visit(place, change);
    }
  }
  size_t places() const { return places_; }
  /// Makes the newest version of a key none, if it has an entry.
  void Drop(uint64_t key, std::string_view text) noexcept;
  /// Makes Put() succeed for new texts of so many bytes altogether. \throws std::bad_alloc
  void ReserveText(size_t bytes);
  /// Copies all entries that have versions. \throws std::bad_alloc
  std::unique_ptr<OverlayIndex> Copy(size_t capacity) const;

 private:
  struct Entry {
    std::atomic<VersionRef> newest{0};  // 0: no entry; the key is written before it
    uint64_t key = 0;
  };
  struct UnmapEntries {
    size_t bytes;
    void operator()(Entry* entries) const { UnmapMemory(entries, bytes); }
  };
  struct Text {
    const char* data = nullptr;
    size_t size = 0;
  };

  static Entry* MapEntries(size_t bytes);
  bool Is(size_t place, uint64_t key, std::string_view text) const;
  std::string_view TextOf(size_t place) const {
    return texts_.empty() ? std::string_view() : std::string_view(texts_[place].data, texts_[place].size);
  }
  template <typename Change>
  void Visit(size_t place, Change&& change) {
    std::atomic<VersionRef>& newest = entries_[place].newest;
    const VersionRef before = newest.load(std::memory_order_relaxed);
    change(entries_[place].key, TextOf(place), &newest);
    dropped_ += newest.load(std::memory_order_relaxed) == kDroppedKey && before != kDroppedKey;
  }
  size_t Next(size_t place) const { return place + 1 == places_ ? 0 : place + 1; }

  const size_t capacity_;
  const size_t places_;
  size_t size_ = 0;
  size_t dropped_ = 0;
  const std::unique_ptr<Entry[], UnmapEntries> entries_;
  std::vector<Text> texts_;  // [places], of strings only
  std::vector<std::unique_ptr<char[]>> chunks_;
  char* free_text_ = nullptr;
  size_t free_text_bytes_ = 0;
  size_t text_bytes_ = 0;
};

}  // namespace processor

#endif  // PROCESSOR_LIVE_OVERLAY_INDEX_H_
