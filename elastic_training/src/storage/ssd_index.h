// SPDX-License-Identifier: Apache-2.0
// The rows of a segment that are on SSD: what memory knows of them, 14.2 bytes each where the index is full.
//
// Keys are in the log. The index has the first 40 bits of their hashes, so a key whose bits match is most likely that of
// the row; its record tells. Time of the last touch, count and norm are rounded, never down: they are for eviction, which
// so evicts no row that it would keep in memory. The record has the exact ones.
//
// Buckets are two cache lines with nine entries. An entry that finds its bucket full goes to the next one that is not; each
// bucket counts the entries that passed it. Entries stay where they are until they are erased, so their slots are names.
#ifndef ELASTIC_TRAINING_STORAGE_SSD_INDEX_H_
#define ELASTIC_TRAINING_STORAGE_SSD_INDEX_H_

#include <cstddef>
#include <cstdint>

#include "src/ssd/record.h"
#include "src/storage/line_memory.h"
#include "src/storage/row_layout.h"
#include "src/storage/tag_matches.h"

namespace elastic_training {

/// What the index knows of a row. `hash`: SsdIndex::BitsOf the hash of its key.
struct SsdEntry {
  uint64_t hash;
  LogPlace place;
  /// RowFlags
  uint32_t flags;
  uint32_t touch, count;
  float norm;
};

class SsdIndex {
 public:
  static constexpr uint32_t kEntries = 9;
  static constexpr uint32_t kNone = UINT32_MAX;
  /// What a row takes on average, at most [bytes].
  static constexpr size_t kRowBytes = 16;
  /// Returns what the index has of a hash: its first 40 bits, the last eight of which are never 0.
  static uint64_t BitsOf(uint64_t hash) { return hash >> 32 << 32 | static_cast<uint64_t>(tag(hash)) << 24; }

  SsdIndex() = default;
  /// Makes an empty index with room for `entries`, at least, whose hashes all begin with the same `depth` bits.
  /// \throws std::bad_alloc
  SsdIndex(uint32_t entries, int depth);

  uint32_t size() const { return size_; }
  bool full() const { return size_ >= limit_; }
  uint32_t buckets() const { return bucket_count_; }
  size_t bytes() const { return memory_.bytes() + texts_.bytes(); }
  void Prefetch(uint64_t hash) const {
    if (bucket_count_ == 0) return;
    const auto* const line = reinterpret_cast<const char*>(&memory_[home(hash)]);
    __builtin_prefetch(line);
    __builtin_prefetch(line + 64);
  }

  /// Returns the slot of the first entry with the bits of a hash for which `equal(slot)` is true, or kNone.
  template <typename Equal>
  uint32_t Find(uint64_t hash, const Equal& equal) const {
    if (bucket_count_ == 0) return kNone;
    const auto high = static_cast<uint32_t>(hash >> 32);
    for (uint32_t b = home(hash), probes = 0; probes < bucket_count_; b = next(b), ++probes) {
      const Bucket& bucket = memory_[b];
      for (uint32_t matches = Matches(bucket, tag(hash)); matches != 0; matches &= matches - 1) {
        const uint32_t i = __builtin_ctz(matches);
        if (bucket.hashes[i] == high && equal(b * kEntries + i)) return b * kEntries + i;
      }
      if (bucket.passed == 0) break;
    }
    return kNone;
  }
  uint32_t Find(uint64_t hash) const {
    return Find(hash, [](uint32_t) { return true; });
  }

  /// Adds an entry, and returns its slot; the index must not be full().
  uint32_t Insert(const SsdEntry& entry);
  void Erase(uint32_t slot);
  /// Adds an entry of another index as it is.
  uint32_t InsertFrom(const SsdIndex& other, uint32_t slot);

  SsdEntry at(uint32_t slot) const;
  uint64_t hash(uint32_t slot) const {
    const Bucket& bucket = memory_[slot / kEntries];
    return static_cast<uint64_t>(bucket.hashes[slot % kEntries]) << 32 |
           static_cast<uint64_t>(bucket.tags[slot % kEntries]) << 24;
  }
  LogPlace place(uint32_t slot) const { return memory_[slot / kEntries].places[slot % kEntries] & ~kZeroBit; }
  void set_place(uint32_t slot, LogPlace place) {
    uint32_t& word = memory_[slot / kEntries].places[slot % kEntries];
    word = (word & kZeroBit) | place;
  }
  /// RowFlags, with kLiveFlag.
  uint32_t flags(uint32_t slot) const;
  void set_flags(uint32_t slot, uint32_t flags);
  /// Where the bytes of the string key are; of a table with string keys, for which AddTexts was called.
  StringPlace& text(uint32_t slot) { return texts_[slot]; }
  const StringPlace& text(uint32_t slot) const { return texts_[slot]; }
  void AddTexts() { texts_ = LineMemory<StringPlace>(size_t{bucket_count_} * kEntries); }

  /// Calls `visit(slot)` for the entries of buckets [begin, end); it may erase the entry.
  template <typename Visit>
  void ForEach(uint32_t begin, uint32_t end, const Visit& visit) const {
    for (uint32_t b = begin; b < end; ++b) {
      for (uint32_t i = 0; i < kEntries; ++i) {
        if (memory_[b].tags[i] != 0) visit(b * kEntries + i);
      }
    }
  }
  template <typename Visit>
  void ForEach(const Visit& visit) const {
    ForEach(0, bucket_count_, visit);
  }

 private:
  struct Bucket {
    uint8_t tags[kEntries];  // 0: free
    uint8_t norms[kEntries];
    uint16_t passed;
    uint32_t hashes[kEntries];
    // The highest bit: all weights are zero.
    uint32_t places[kEntries];
    // Touch 20 bits, count 8 bits, flags 4 bits.
    uint32_t marks[kEntries];
  };
  static_assert(sizeof(Bucket) == 128, "a bucket is two cache lines");
  static constexpr uint32_t kZeroBit = 1u << 31;

  static uint8_t tag(uint64_t hash) {
    const auto bits = static_cast<uint8_t>(hash >> 24);
    return bits == 0 ? 1 : bits;
  }
  // All hashes begin with the same bits. Those that follow are in each entry, so an index grows without the keys.
  uint32_t home(uint64_t hash) const {
    return static_cast<uint64_t>(static_cast<uint32_t>(hash >> 32) << depth_) * bucket_count_ >> 32;
  }
  uint32_t next(uint32_t bucket) const { return bucket + 1 == bucket_count_ ? 0 : bucket + 1; }
  // Takes a free entry for a hash.
  uint32_t Take(uint64_t hash);

  LineMemory<Bucket> memory_;
  LineMemory<StringPlace> texts_;
  uint32_t bucket_count_ = 0, size_ = 0, limit_ = 0;
  int depth_ = 0;
};

/// Rounds a time [s since 2020-01-01 UTC], a count and a norm as the index does.
uint32_t RoundedTouch(uint32_t touch);
uint32_t RoundedCount(uint32_t count);
float RoundedNorm(float norm);

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_STORAGE_SSD_INDEX_H_
