// SPDX-License-Identifier: Apache-2.0
// Searches for many keys at a time in the buckets of an index, for every kind of bucket.
//
// An index has `buckets`, `num_buckets` and `home_buckets`; a bucket has key(i), row(i) and State(). An index of strings has
// HasText(), FetchTextPlace() and FetchText().
#ifndef PROCESSOR_TABLES_BUCKET_SEARCH_H_
#define PROCESSOR_TABLES_BUCKET_SEARCH_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/types/span.h"
#include "src/tables/table_index.h"
#include "tensorflow/core/platform/tstring.h"

namespace processor {

// Keys whose memory is on the way while others are looked up: more than a core has line-fill buffers, so that none idles.
constexpr size_t kKeysAhead = 32;

// Bit i: key i of the bucket is `key`. No branches: which of the five it is cannot be predicted.
template <typename Bucket>
inline uint32_t Matches(const Bucket& bucket, const BucketState& state, uint64_t key) {
  uint32_t found = 0;
  for (uint32_t i = 0; i < kBucketKeys; ++i) found |= static_cast<uint32_t>(bucket.key(i) == key) << i;
  return found & state.used;
}

template <typename Bucket>
inline uint32_t RowOfMatch(const Bucket& bucket, uint32_t found) {
  static_assert(kNotFound == ~uint32_t{0}, "all bits, so that it takes no branch");
  return bucket.row(static_cast<uint32_t>(__builtin_ctz(found | 1u << (kBucketKeys - 1)))) |
         -static_cast<uint32_t>(found == 0);
}

/// Searches from a bucket on for a key.
template <typename Index>
uint32_t FindFrom(const Index& index, uint64_t b, uint64_t key) {
  for (; b < index.num_buckets; ++b) {
    const BucketState state = index.buckets[b].State();
    const uint32_t found = Matches(index.buckets[b], state, key);
    if ((found | state.ends) != 0) return RowOfMatch(index.buckets[b], found);
  }
  return kNotFound;
}

/// Searches from a bucket on for a key with these bytes.
template <typename Index>
uint32_t FindTextFrom(const Index& index, uint64_t b, uint64_t key, std::string_view text) {
  for (; b < index.num_buckets; ++b) {
    const BucketState state = index.buckets[b].State();
    for (uint32_t found = Matches(index.buckets[b], state, key); found != 0; found &= found - 1) {
      const uint32_t row = index.buckets[b].row(static_cast<uint32_t>(__builtin_ctz(found)));
      if (index.HasText(row, text)) return row;
    }
    if (state.ends != 0) break;
  }
  return kNotFound;
}

/// Finds what a caller asks for one by one, and what of it is not in its home later, when the next bucket has come: keys
/// whose home has overflowed would otherwise wait for the memory one after the other.
template <typename Index>
class BucketSearch {
 public:
  BucketSearch(const Index& index, uint32_t* rows) : index_(index), rows_(rows) {}

  void Find(size_t i, uint64_t home, uint64_t key) {
    const auto& bucket = index_.buckets[home];
    const BucketState state = bucket.State();
    const uint32_t found = Matches(bucket, state, key);
    rows_[i] = RowOfMatch(bucket, found);
    // One branch for both: whether a bucket is full cannot be predicted, that a key is there mostly can.
    if ((found | state.ends) != 0) return;
    __builtin_prefetch(&bucket + 1);
    later_[num_later_++] = {i, home + 1, key};
    if (num_later_ == kKeysAhead) Finish();
  }

  void Finish() {
    for (size_t i = 0; i < num_later_; ++i) rows_[later_[i].i] = FindFrom(index_, later_[i].bucket, later_[i].key);
    num_later_ = 0;
  }

 private:
  struct Later {
    size_t i;
    uint64_t bucket, key;
  };

  const Index& index_;
  uint32_t* const rows_;
  Later later_[kKeysAhead];
  size_t num_later_ = 0;
};

/// Writes the row of each key, or kNotFound. \return the number of keys that were not found.
template <typename Index>
size_t FindIntegers(const Index& index, absl::Span<const int64_t> keys, uint32_t* rows) {
  uint64_t homes[kKeysAhead];  // a ring: of keys[i] at i % kKeysAhead
  const auto fetch = [&](size_t i) {
    const uint64_t home = HomeBucket(static_cast<uint64_t>(keys[i]), index.home_buckets);
    __builtin_prefetch(&index.buckets[home]);
    homes[i % kKeysAhead] = home;
  };
  BucketSearch<Index> search(index, rows);
  for (size_t i = 0; i < std::min(kKeysAhead, keys.size()); ++i) fetch(i);
  for (size_t i = 0; i < keys.size(); ++i) {
    const uint64_t home = homes[i % kKeysAhead];
    if (i + kKeysAhead < keys.size()) fetch(i + kKeysAhead);
    search.Find(i, home, static_cast<uint64_t>(keys[i]));
  }
  search.Finish();
  return static_cast<size_t>(std::count(rows, rows + keys.size(), kNotFound));
}

/// The same for strings. In rounds, each of which fetches what the next will read: bucket, where the bytes are, bytes.
template <typename Index>
size_t FindTexts(const Index& index, absl::Span<const tensorflow::tstring> keys, uint32_t* rows) {
  size_t absent = 0;
  for (size_t first = 0; first < keys.size(); first += kKeysAhead) {
    const size_t count = std::min(kKeysAhead, keys.size() - first);
    uint32_t* const found = rows + first;
    std::string_view texts[kKeysAhead];
    uint64_t fingerprints[kKeysAhead], homes[kKeysAhead];
    for (size_t i = 0; i < count; ++i) {
      texts[i] = {keys[first + i].data(), keys[first + i].size()};
      fingerprints[i] = StringKey(texts[i]);
      homes[i] = HomeBucket(fingerprints[i], index.home_buckets);
      __builtin_prefetch(&index.buckets[homes[i]]);
    }
    // The first row of this fingerprint, which is nearly always the one that is sought.
    BucketSearch<Index> search(index, found);
    for (size_t i = 0; i < count; ++i) search.Find(i, homes[i], fingerprints[i]);
    search.Finish();
    for (size_t i = 0; i < count; ++i) {
      if (found[i] != kNotFound) index.FetchTextPlace(found[i]);
    }
    for (size_t i = 0; i < count; ++i) {
      if (found[i] != kNotFound) index.FetchText(found[i]);
    }
    for (size_t i = 0; i < count; ++i) {
      if (found[i] != kNotFound && !index.HasText(found[i], texts[i])) {
        found[i] = FindTextFrom(index, homes[i], fingerprints[i], texts[i]);
      }
      absent += found[i] == kNotFound;
    }
  }
  return absent;
}

}  // namespace processor

#endif  // PROCESSOR_TABLES_BUCKET_SEARCH_H_
