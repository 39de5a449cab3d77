// SPDX-License-Identifier: Apache-2.0
// The hashed index of a table (docs/table_format.md), from keys to row numbers. It is read-only; any thread may search.
#ifndef PROCESSOR_TABLES_TABLE_INDEX_H_
#define PROCESSOR_TABLES_TABLE_INDEX_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/types/span.h"
#include "tensorflow/core/platform/tstring.h"

namespace processor {

constexpr uint32_t kBucketKeys = 5;

/// What a search needs to know of a bucket.
struct BucketState {
  uint32_t used;  // bit i: it has key i
  uint32_t ends;  // not 0: no key of an earlier home lies behind this bucket
};

/// One cache line of the index.
struct TableBucket {
  uint64_t keys[kBucketKeys];
  uint32_t rows[kBucketKeys];
  uint32_t count;

  uint64_t key(uint32_t i) const { return keys[i]; }
  uint32_t row(uint32_t i) const { return rows[i]; }
  BucketState State() const { return {(1u << count) - 1, kBucketKeys - count}; }
};
static_assert(sizeof(TableBucket) == 64);

/// The row number of a key that was not found; no table has as many rows.
constexpr uint32_t kNotFound = 0xffffffffu;

/// The finalizer of MurmurHash3 for 64 bits.
inline uint64_t MixKey(uint64_t key) {
  key ^= key >> 33;
  key *= 0xff51afd7ed558ccdu;
  key ^= key >> 33;
  key *= 0xc4ceb9fe1a85ec53u;
  return key ^ (key >> 33);
}

/// Returns the bucket in which the search for a key begins.
inline uint64_t HomeBucket(uint64_t key, uint64_t home_buckets) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(MixKey(key)) * home_buckets) >> 64);
}

/// Returns the key of a string, its FarmHash Fingerprint64.
uint64_t StringKey(std::string_view text);

/// Searches the buckets of a table, which owns them and has checked them: the last one is not full, so that every search
/// ends.
struct TableIndex {
  const TableBucket* buckets = nullptr;
  uint64_t num_buckets = 0;
  uint64_t home_buckets = 0;
  const uint64_t* key_offsets = nullptr;  // of strings only
  const char* key_bytes = nullptr;

  /// Writes the row of each key, or kNotFound. Buckets are prefetched several keys ahead.
  /// \return the number of keys that were not found.
  size_t Find(absl::Span<const int64_t> keys, uint32_t* rows) const;
  size_t Find(absl::Span<const tensorflow::tstring> keys, uint32_t* rows) const;

  /// Prefetches the bucket in which the search for a key begins.
  void Fetch(uint64_t key) const { __builtin_prefetch(&buckets[HomeBucket(key, home_buckets)]); }

  /// The bytes of the string of a row.
  std::string_view Text(uint32_t row) const {
    return {key_bytes + key_offsets[row], static_cast<size_t>(key_offsets[row + 1] - key_offsets[row])};
  }
  bool HasText(uint32_t row, std::string_view text) const { return Text(row) == text; }
  /// Prefetches where the bytes are; then the bytes.
  void FetchTextPlace(uint32_t row) const { __builtin_prefetch(&key_offsets[row]); }
  void FetchText(uint32_t row) const { __builtin_prefetch(key_bytes + key_offsets[row]); }
};

/// Searches a direct table, in which a key is its row number. \return as TableIndex::Find().
size_t FindDirect(absl::Span<const int64_t> keys, uint64_t num_rows, uint32_t* rows);

}  // namespace processor

#endif  // PROCESSOR_TABLES_TABLE_INDEX_H_
