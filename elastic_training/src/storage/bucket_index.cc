// SPDX-License-Identifier: Apache-2.0
#include "src/storage/bucket_index.h"

namespace elastic_training {
namespace {

constexpr double kMaxFill = 15.0 / 16;

}  // namespace

BucketIndex::BucketIndex(uint32_t entries) {
  bucket_count_ = static_cast<uint32_t>(entries / (kMaxFill * kEntries)) + 1;
  limit_ = static_cast<uint32_t>(bucket_count_ * (kMaxFill * kEntries));
  buckets_ = LineMemory<Bucket>(bucket_count_);
}

void BucketIndex::Insert(uint64_t hash, uint32_t row) {
  uint32_t b = home(hash), free;
  while ((free = Matches(buckets_[b], 0)) == 0) {
    ++buckets_[b].passed;
    b = next(b);
  }
  const uint32_t entry = __builtin_ctz(free);
  buckets_[b].tags[entry] = tag(hash);
  buckets_[b].rows[entry] = row;
  ++size_;
}

void BucketIndex::Locate(uint64_t hash, uint32_t row, uint32_t* bucket, uint32_t* entry) const {
  for (uint32_t b = home(hash);; b = next(b)) {
    for (uint32_t matches = Matches(buckets_[b], tag(hash)); matches != 0; matches &= matches - 1) {
      const uint32_t i = __builtin_ctz(matches);
      if (buckets_[b].rows[i] != row) continue;
      *bucket = b;
      *entry = i;
      return;
    }
  }
}

void BucketIndex::Erase(uint64_t hash, uint32_t row) {
  uint32_t bucket, entry;
  Locate(hash, row, &bucket, &entry);
  for (uint32_t b = home(hash); b != bucket; b = next(b)) --buckets_[b].passed;
  buckets_[bucket].tags[entry] = 0;
  --size_;
}

void BucketIndex::Replace(uint64_t hash, uint32_t from, uint32_t to) {
  uint32_t bucket, entry;
  Locate(hash, from, &bucket, &entry);
  buckets_[bucket].rows[entry] = to;
}

}  // namespace elastic_training
