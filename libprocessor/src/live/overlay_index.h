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
#include "src/live/overlay_memory.h"
#include "src/tables/table_index.h"

namespace processor {

/// Keys are numbers, or strings, whose numbers are their fingerprints. Entries are only added. A larger index is a copy,
/// which readers get with the next epoch; so an index lives as long as the last epoch that was made with it.
class OverlayIndex {
 public:
  /// `capacity`: the entries that fit. \throws std::bad_alloc
  OverlayIndex(size_t capacity, bool strings);

  size_t size() const { return size_; }
  size_t capacity() const { return capacity_; }
  size_t bytes() const { return places_ * sizeof(Entry) + texts_.size() * sizeof(texts_[0]) + text_bytes_; }

  /// Prefetches what Find() will read first. Any thread.
  void Fetch(uint64_t key) const { __builtin_prefetch(&entries_[HomeBucket(key, places_)]); }

  /// Finds the newest version of a key: null if there is no entry. Any thread.
  const std::atomic<VersionRef>* Find(uint64_t key, std::string_view text = {}) const;

  // Only the writer:
  /// Returns the entry of a key, or makes one; the caller must store a version that is not 0.
  /// \throws std::bad_alloc if ReserveText() was not called before for so many bytes.
  std::atomic<VersionRef>* FindOrAdd(uint64_t key, std::string_view text = {});
  std::atomic<VersionRef>* FindForWriting(uint64_t key, VersionRef newest);
  /// Makes FindOrAdd() succeed for new texts of so many bytes altogether.
  void ReserveText(size_t bytes);
  /// Copies all entries except those whose version is `dropped`.
  std::unique_ptr<OverlayIndex> Copy(size_t capacity, VersionRef dropped) const;

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
  size_t Next(size_t place) const { return place + 1 == places_ ? 0 : place + 1; }

  const size_t capacity_;
  const size_t places_;
  size_t size_ = 0;
  const std::unique_ptr<Entry[], UnmapEntries> entries_;
  std::vector<Text> texts_;  // [places], of strings only
  std::vector<std::unique_ptr<char[]>> chunks_;
  char* free_text_ = nullptr;
  size_t free_text_bytes_ = 0;
  size_t text_bytes_ = 0;
};

}  // namespace processor

#endif  // PROCESSOR_LIVE_OVERLAY_INDEX_H_
