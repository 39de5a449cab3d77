// SPDX-License-Identifier: Apache-2.0
#include "src/tables/table_index.h"

#include <algorithm>
#include <cstring>

#include "external/farmhash_archive/src/farmhash.h"

namespace processor {
namespace {

// Keys whose memory is on the way while others are looked up: more than a core has line-fill buffers, so that none idles.
constexpr size_t kAhead = 32;

// Bit i: key i of the bucket is `key`. No branches: which of the five it is cannot be predicted.
inline uint32_t Matches(const TableBucket& bucket, uint64_t key) {
  uint32_t found = 0;
  for (uint32_t i = 0; i < kBucketKeys; ++i) found |= static_cast<uint32_t>(bucket.keys[i] == key) << i;
  return found & ((1u << bucket.count) - 1);
}

inline uint32_t RowOf(const TableBucket& bucket, uint32_t found) {
  static_assert(kNotFound == ~uint32_t{0}, "all bits, so that it takes no branch");
  return bucket.rows[__builtin_ctz(found | 1u << (kBucketKeys - 1))] | -static_cast<uint32_t>(found == 0);
}

// Searches from a bucket on for a key.
uint32_t FindFrom(const TableIndex& index, uint64_t b, uint64_t key) {
  for (; b < index.num_buckets; ++b) {
    const TableBucket& bucket = index.buckets[b];
    const uint32_t found = Matches(bucket, key);
    if (found != 0 || bucket.count < kBucketKeys) return RowOf(bucket, found);
  }
  return kNotFound;
}

// Finds what a caller asks for one by one, and what of it is not in its home later, when the next bucket has come: keys
// whose home has overflowed would otherwise wait for the memory one after the other.
class Search {
 public:
  Search(const TableIndex& index, uint32_t* rows) : index_(index), rows_(rows) {}

  void Find(size_t i, uint64_t home, uint64_t key) {
    const TableBucket& bucket = index_.buckets[home];
    const uint32_t found = Matches(bucket, key);
    rows_[i] = RowOf(bucket, found);
    // One branch for both: whether a bucket is full cannot be predicted, that a key is there mostly can.
    if ((found | (kBucketKeys - bucket.count)) != 0) return;
    __builtin_prefetch(&bucket + 1);
    later_[num_later_++] = {i, home + 1, key};
    if (num_later_ == kAhead) Finish();
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

  const TableIndex& index_;
  uint32_t* const rows_;
  Later later_[kAhead];
  size_t num_later_ = 0;
};

inline bool HasBytes(const TableIndex& index, uint32_t row, const tensorflow::tstring& text) {
  const uint64_t begin = index.key_offsets[row];
  return index.key_offsets[row + 1] - begin == text.size() &&
         std::memcmp(index.key_bytes + begin, text.data(), text.size()) == 0;
}

uint32_t FindString(const TableIndex& index, uint64_t home, uint64_t key, const tensorflow::tstring& text) {
  for (uint64_t b = home; b < index.num_buckets; ++b) {
    const TableBucket& bucket = index.buckets[b];
    for (uint32_t found = Matches(bucket, key); found != 0; found &= found - 1) {
      const uint32_t row = bucket.rows[__builtin_ctz(found)];
      if (HasBytes(index, row, text)) return row;
    }
    if (bucket.count < kBucketKeys) break;
  }
  return kNotFound;
}

}  // namespace

uint64_t StringKey(std::string_view text) { return util::Fingerprint64(text.data(), text.size()); }

size_t TableIndex::Find(absl::Span<const int64_t> keys, uint32_t* rows) const {
  uint64_t homes[kAhead];  // a ring: of keys[i] at i % kAhead
  const auto fetch = [&](size_t i) {
    const uint64_t home = HomeBucket(static_cast<uint64_t>(keys[i]), home_buckets);
    __builtin_prefetch(&buckets[home]);
    homes[i % kAhead] = home;
  };
  Search search(*this, rows);
  for (size_t i = 0; i < std::min(kAhead, keys.size()); ++i) fetch(i);
  for (size_t i = 0; i < keys.size(); ++i) {
    const uint64_t home = homes[i % kAhead];
    if (i + kAhead < keys.size()) fetch(i + kAhead);
    search.Find(i, home, static_cast<uint64_t>(keys[i]));
  }
  search.Finish();
  return static_cast<size_t>(std::count(rows, rows + keys.size(), kNotFound));
}

// In rounds, each of which fetches what the next will read: bucket, where the bytes are, bytes.
size_t TableIndex::Find(absl::Span<const tensorflow::tstring> keys, uint32_t* rows) const {
  size_t absent = 0;
  for (size_t first = 0; first < keys.size(); first += kAhead) {
    const size_t count = std::min(kAhead, keys.size() - first);
    const tensorflow::tstring* texts = keys.data() + first;
    uint32_t* found = rows + first;
    uint64_t fingerprints[kAhead], homes[kAhead];
    for (size_t i = 0; i < count; ++i) {
      fingerprints[i] = StringKey({texts[i].data(), texts[i].size()});
      homes[i] = HomeBucket(fingerprints[i], home_buckets);
      __builtin_prefetch(&buckets[homes[i]]);
    }
    // The first row of this fingerprint, which is nearly always the one that is sought.
    Search search(*this, found);
    for (size_t i = 0; i < count; ++i) search.Find(i, homes[i], fingerprints[i]);
    search.Finish();
    for (size_t i = 0; i < count; ++i) {
      if (found[i] != kNotFound) __builtin_prefetch(&key_offsets[found[i]]);
    }
    for (size_t i = 0; i < count; ++i) {
      if (found[i] != kNotFound) __builtin_prefetch(key_bytes + key_offsets[found[i]]);
    }
    for (size_t i = 0; i < count; ++i) {
      if (found[i] != kNotFound && !HasBytes(*this, found[i], texts[i])) {
        found[i] = FindString(*this, homes[i], fingerprints[i], texts[i]);
      }
      absent += found[i] == kNotFound;
    }
  }
  return absent;
}

size_t FindDirect(absl::Span<const int64_t> keys, uint64_t num_rows, uint32_t* rows) {
  size_t absent = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    const bool exists = static_cast<uint64_t>(keys[i]) < num_rows;
    rows[i] = exists ? static_cast<uint32_t>(keys[i]) : kNotFound;
    absent += !exists;
  }
  return absent;
}

}  // namespace processor
