// SPDX-License-Identifier: Apache-2.0
// The index of a table file in memory, which one thread changes while others search.
#ifndef PROCESSOR_LIVE_LIVE_INDEX_H_
#define PROCESSOR_LIVE_LIVE_INDEX_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/types/span.h"
#include "src/base/mapped_memory.h"
#include "src/live/row_texts.h"
#include "src/tables/table_index.h"
#include "tensorflow/core/platform/tstring.h"

namespace processor {

/// A bucket of the file's index whose count has become a word of state:
/// - bits 0 to 4: which keys it has;
/// - bits 5 to 9: the places of keys that were erased, until nobody can have found them any more;
/// - the others count the keys of this or an earlier home that lie behind it. Without any, a search ends here.
struct LiveBucket {
  static constexpr uint32_t kAll = (1u << kBucketKeys) - 1;
  static constexpr uint32_t kOneBehind = 1u << (2 * kBucketKeys);
  static constexpr uint32_t kMostBehind = ~uint32_t{0} - (kOneBehind - 1);

  std::atomic<uint64_t> keys[kBucketKeys];
  std::atomic<uint32_t> rows[kBucketKeys];
  std::atomic<uint32_t> state;

  uint64_t key(uint32_t i) const { return keys[i].load(std::memory_order_relaxed); }
  uint32_t row(uint32_t i) const { return rows[i].load(std::memory_order_relaxed); }
  BucketState State() const {
    const uint32_t found = state.load(std::memory_order_acquire);
    return {found & kAll, static_cast<uint32_t>(found < kOneBehind)};
  }
};
static_assert(sizeof(LiveBucket) == sizeof(TableBucket));

/// It has about as many buckets as the file, and never more keys. Keys are numbers, or strings, whose numbers are their
/// fingerprints. What the writer does in between, a reader does not notice: it finds what was there before, or after.
class LiveIndex {
 public:
  /// Makes an index without keys. `text_bytes`: of all strings; `rows`: of the file.
  /// \return null if there is no memory.
  static std::unique_ptr<LiveIndex> Create(const TableIndex& file, bool strings, uint64_t rows, uint64_t text_bytes);

  // For readers, from any thread:
  /// Search as those of TableIndex; a key of the other kind is not found.
  size_t Find(absl::Span<const int64_t> keys, uint32_t* rows) const;
  size_t Find(absl::Span<const tensorflow::tstring> keys, uint32_t* rows) const;
  void Fetch(uint64_t key) const { __builtin_prefetch(&buckets[HomeBucket(key, home_buckets)]); }

  // For the writer:
  uint32_t Find(uint64_t key, std::string_view text) const;
  std::string_view Text(uint32_t row) const { return strings_ ? texts_.At(row) : std::string_view(); }
  size_t bytes() const { return num_buckets * sizeof(LiveBucket) + (strings_ ? texts_.bytes() : 0); }

  /// Copies buckets of the file, in ascending order, before there are readers. \return false if there is no memory.
  bool Copy(const TableIndex& file, uint64_t first, uint64_t count);
  /// Calls `visit` with the keys and rows of a bucket.
  template <typename Visit>
  void ForEach(uint64_t bucket, Visit&& visit) const {
    for (uint32_t used = buckets[bucket].State().used; used != 0; used &= used - 1) {
      const auto i = static_cast<uint32_t>(__builtin_ctz(used));
      visit(buckets[bucket].key(i), buckets[bucket].row(i));
    }
  }
  /// Adds a key that it does not have. \return false if there is no place near its home, or no memory.
  bool Insert(uint64_t key, std::string_view text, uint32_t row) noexcept;
  /// Where a key was.
  struct Place {
    uint64_t bucket;
    uint32_t i;
  };
  /// Removes a key, whose place and text are kept for those who found it. \return false if it is not there.
  bool Erase(uint64_t key, uint32_t row, Place* place) noexcept;
  /// Uses a place again, and the text of its row.
  void Free(const Place& place) noexcept;

  // What searches read.
  const LiveBucket* buckets = nullptr;
  uint64_t num_buckets = 0;
  uint64_t home_buckets = 0;
  bool HasText(uint32_t row, std::string_view text) const { return texts_.At(row) == text; }
  void FetchTextPlace(uint32_t row) const { texts_.FetchPlace(row); }
  void FetchText(uint32_t row) const { texts_.Fetch(row); }

 private:
  struct UnmapBuckets {
    size_t bytes;
    void operator()(LiveBucket* buckets) const { UnmapMemory(buckets, bytes); }
  };

  LiveIndex() = default;
  void AddBehind(uint64_t first, uint64_t end) noexcept;

  bool strings_ = false;
  std::unique_ptr<LiveBucket[], UnmapBuckets> owned_{nullptr, {0}};
  RowTexts texts_;  // of strings only
};

}  // namespace processor

#endif  // PROCESSOR_LIVE_LIVE_INDEX_H_
