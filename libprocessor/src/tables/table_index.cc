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

inline uint32_t FindInteger(const TableIndex& index, uint64_t home, uint64_t key) {
  for (uint64_t b = home; b < index.num_buckets; ++b) {
    const TableBucket& bucket = index.buckets[b];
    if (const uint32_t found = Matches(bucket, key)) return bucket.rows[__builtin_ctz(found)];
    if (bucket.count < kBucketKeys) break;
  }
  return kNotFound;
}

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
  size_t absent = 0;
  for (size_t i = 0; i < std::min(kAhead, keys.size()); ++i) fetch(i);
  for (size_t i = 0; i < keys.size(); ++i) {
    const uint64_t home = homes[i % kAhead];
    if (i + kAhead < keys.size()) fetch(i + kAhead);
    rows[i] = FindInteger(*this, home, static_cast<uint64_t>(keys[i]));
    absent += rows[i] == kNotFound;
  }
  return absent;
}

// In rounds, each of which fetches what the next will read: bucket, where the bytes are, bytes.
size_t TableIndex::Find(absl::Span<const tensorflow::tstring> keys, uint32_t* rows) const {
  size_t absent = 0;
  for (size_t first = 0; first < keys.size(); first += kAhead) {
    const size_t count = std::min(kAhead, keys.size() - first);
    const tensorflow::tstring* texts = keys.data() + first;
    uint32_t* found_rows = rows + first;
    uint64_t fingerprints[kAhead], homes[kAhead];
    for (size_t i = 0; i < count; ++i) {
      fingerprints[i] = StringKey({texts[i].data(), texts[i].size()});
      homes[i] = HomeBucket(fingerprints[i], home_buckets);
      __builtin_prefetch(&buckets[homes[i]]);
    }
    // Whose fingerprint it is first, which is nearly always the row that is sought.
    for (size_t i = 0; i < count; ++i) {
      found_rows[i] = FindInteger(*this, homes[i], fingerprints[i]);
      if (found_rows[i] != kNotFound) __builtin_prefetch(&key_offsets[found_rows[i]]);
    }
    for (size_t i = 0; i < count; ++i) {
      if (found_rows[i] != kNotFound) __builtin_prefetch(key_bytes + key_offsets[found_rows[i]]);
    }
    for (size_t i = 0; i < count; ++i) {
      if (found_rows[i] != kNotFound && !HasBytes(*this, found_rows[i], texts[i])) {
        found_rows[i] = FindString(*this, homes[i], fingerprints[i], texts[i]);
      }
      absent += found_rows[i] == kNotFound;
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
