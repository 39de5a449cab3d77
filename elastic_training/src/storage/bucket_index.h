// SPDX-License-Identifier: Apache-2.0
// From hashes to row numbers: buckets of one cache line, each with 12 entries of a tag (a byte of the hash) and a row
// number. An entry that finds its bucket full goes to the next one that is not; every bucket counts the entries that
// passed it, so a search ends where none has, and removal leaves nothing behind.
//
// The index does not know keys: callers compare the keys of the rows whose tags match.
#ifndef ELASTIC_TRAINING_STORAGE_BUCKET_INDEX_H_
#define ELASTIC_TRAINING_STORAGE_BUCKET_INDEX_H_

#include <cstddef>
#include <cstdint>

#include "src/storage/line_memory.h"
#include "src/storage/row_layout.h"
#include "src/storage/tag_matches.h"

namespace elastic_training {

class BucketIndex {
 public:
  static constexpr uint32_t kEntries = 12;

  BucketIndex() = default;
  /// Makes an empty index with room for `entries`, at least. \throws std::bad_alloc
  explicit BucketIndex(uint32_t entries);

  uint32_t size() const { return size_; }
  /// Whether another entry needs a larger index: 15/16 of the entries are used.
  bool full() const { return size_ >= limit_; }
  /// Whether a larger index would be good: 31/32 of the limit are used.
  bool crowded() const { return size_ >= limit_ - limit_ / 32; }
  uint32_t buckets() const { return bucket_count_; }
  size_t bytes() const { return buckets_.bytes(); }
  /// Asks for the memory of the first bucket of a hash.
  void Prefetch(uint64_t hash) const {
    if (bucket_count_ != 0) __builtin_prefetch(&buckets_[home(hash)]);
  }

  /// Returns the row of the first entry of the home bucket whose tag matches: most likely the one that Find finds.
  uint32_t Guess(uint64_t hash) const {
    if (bucket_count_ == 0) return kNoRow;
    const Bucket& bucket = buckets_[home(hash)];
    const uint32_t matches = Matches(bucket, tag(hash));
    return matches == 0 ? kNoRow : bucket.rows[__builtin_ctz(matches)];
  }

  /// Returns the first row for which `equal(row)` is true among those whose tags match, or kNoRow.
  template <typename Equal>
  uint32_t Find(uint64_t hash, const Equal& equal) const {
    if (bucket_count_ == 0) return kNoRow;
    for (uint32_t b = home(hash), probes = 0; probes < bucket_count_; b = next(b), ++probes) {
      const Bucket& bucket = buckets_[b];
      for (uint32_t matches = Matches(bucket, tag(hash)); matches != 0; matches &= matches - 1) {
        const uint32_t row = bucket.rows[__builtin_ctz(matches)];
        if (equal(row)) return row;
      }
      if (bucket.passed == 0) break;
    }
    return kNoRow;
  }

  /// Adds an entry; the index must not be full().
  void Insert(uint64_t hash, uint32_t row);
  /// Removes the entry of this row, which must be present.
  void Erase(uint64_t hash, uint32_t row);
  /// Gives the entry of row `from` the number `to`.
  void Replace(uint64_t hash, uint32_t from, uint32_t to);

  /// Calls `visit(row)` for every entry.
  template <typename Visit>
  void ForEach(const Visit& visit) const {
    for (uint32_t b = 0; b < bucket_count_; ++b) {
      for (uint32_t i = 0; i < kEntries; ++i) {
        if (buckets_[b].tags[i] != 0) visit(buckets_[b].rows[i]);
      }
    }
  }

  /// Calls `visit(row)` for the entries of some buckets, from *bucket on, and moves it; returns whether buckets are left.
  template <typename Visit>
  bool ForEachFrom(uint32_t* bucket, const Visit& visit) const {
    constexpr uint32_t kSome = 16;
    const uint32_t end = *bucket < bucket_count_ && bucket_count_ - *bucket > kSome ? *bucket + kSome : bucket_count_;
    for (; *bucket < end; ++*bucket) {
      for (uint32_t i = 0; i < kEntries; ++i) {
        if (buckets_[*bucket].tags[i] != 0) visit(buckets_[*bucket].rows[i]);
      }
    }
    return *bucket < bucket_count_;
  }

 private:
  struct Bucket {
    uint8_t tags[kEntries];  // 0: free
    uint32_t passed;
    uint32_t rows[kEntries];
  };
  static_assert(sizeof(Bucket) == 64, "a bucket is a cache line");

  // The segment is chosen by the highest bits of the hash, the bucket by the middle ones, the tag by the lowest.
  static uint8_t tag(uint64_t hash) { return static_cast<uint8_t>(hash) == 0 ? 1 : static_cast<uint8_t>(hash); }
  uint32_t home(uint64_t hash) const { return (hash & 0xffffffff) * bucket_count_ >> 32; }
  uint32_t next(uint32_t bucket) const { return bucket + 1 == bucket_count_ ? 0 : bucket + 1; }

  // The bucket and the place in it of an entry that is present.
  void Locate(uint64_t hash, uint32_t row, uint32_t* bucket, uint32_t* entry) const;

  LineMemory<Bucket> buckets_;
  uint32_t bucket_count_ = 0, size_ = 0, limit_ = 0;
};

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_STORAGE_BUCKET_INDEX_H_
