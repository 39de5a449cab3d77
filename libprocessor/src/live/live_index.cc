// SPDX-License-Identifier: Apache-2.0
#include "src/live/live_index.h"

#include <sys/mman.h>

#include <algorithm>

#include "src/tables/bucket_search.h"

namespace processor {
namespace {

constexpr size_t kIndexHugePage = size_t{2} << 20;
// A key that would be farther from its home is not added: searches would take long.
constexpr uint64_t kFarthestBucket = 64;
// For keys whose homes are the last ones.
constexpr uint64_t kBucketsAtEnd = 8;

}  // namespace

std::unique_ptr<LiveIndex> LiveIndex::Create(const TableIndex& file, bool strings, uint64_t rows, uint64_t text_bytes) {
  std::unique_ptr<LiveIndex> made(new LiveIndex());
  made->num_buckets = file.num_buckets + kBucketsAtEnd;
  const size_t bytes = made->num_buckets * sizeof(LiveBucket);
  // Pages of zeros are empty buckets.
  void* const mapped = MapMemory(bytes, bytes < kIndexHugePage ? sizeof(LiveBucket) : kIndexHugePage);
  if (mapped == nullptr) return nullptr;
  // Searches jump; with small pages, each would also look for the page.
  if (bytes >= kIndexHugePage) madvise(mapped, bytes, MADV_HUGEPAGE);
  made->owned_ = {static_cast<LiveBucket*>(mapped), {bytes}};
  made->buckets = made->owned_.get();
  made->home_buckets = file.home_buckets;
  made->strings_ = strings;
  if (strings && !made->texts_.Create(rows, text_bytes)) return nullptr;
  return made;
}

size_t LiveIndex::Find(absl::Span<const int64_t> keys, uint32_t* rows) const {
  if (!strings_) return FindIntegers(*this, keys, rows);
  std::fill_n(rows, keys.size(), kNotFound);
  return keys.size();
}

size_t LiveIndex::Find(absl::Span<const tensorflow::tstring> keys, uint32_t* rows) const {
  if (strings_) return FindTexts(*this, keys, rows);
  std::fill_n(rows, keys.size(), kNotFound);
  return keys.size();
}

uint32_t LiveIndex::Find(uint64_t key, std::string_view text) const {
  const uint64_t home = HomeBucket(key, home_buckets);
  return strings_ ? FindTextFrom(*this, home, key, text) : FindFrom(*this, home, key);
}

void LiveIndex::AddBehind(uint64_t first, uint64_t end) noexcept {
  for (uint64_t b = first; b < end; ++b) {
    const uint32_t state = owned_[b].state.load(std::memory_order_relaxed);
    // A count that is full stays as it is, also when keys go.
    if (state < LiveBucket::kMostBehind) {
      owned_[b].state.store(state + LiveBucket::kOneBehind, std::memory_order_release);
    }
  }
}

bool LiveIndex::Copy(const TableIndex& file, uint64_t first, uint64_t count) {
  for (uint64_t b = first; b < first + count; ++b) {
    const TableBucket& from = file.buckets[b];
    LiveBucket& to = owned_[b];
    for (uint32_t i = 0; i < from.count; ++i) {
      if (strings_ && !texts_.Set(from.rows[i], file.Text(from.rows[i]))) return false;
      to.keys[i].store(from.keys[i], std::memory_order_relaxed);
      to.rows[i].store(from.rows[i], std::memory_order_relaxed);
      AddBehind(HomeBucket(from.keys[i], home_buckets), b);
    }
    const uint32_t behind = to.state.load(std::memory_order_relaxed);
    to.state.store(behind | from.State().used, std::memory_order_release);
  }
  return true;
}

bool LiveIndex::Insert(uint64_t key, std::string_view text, uint32_t row) noexcept {
  const uint64_t home = HomeBucket(key, home_buckets);
  const uint64_t end = std::min(num_buckets, home + kFarthestBucket);
  const auto free_places = [this](uint64_t b) {
    const uint32_t state = owned_[b].state.load(std::memory_order_relaxed);
    return ~(state | state >> kBucketKeys) & LiveBucket::kAll;
  };
  uint64_t b = home;
  while (b < end && free_places(b) == 0) ++b;
  if (b == end || (strings_ && !texts_.Set(row, text))) return false;
  const auto i = static_cast<uint32_t>(__builtin_ctz(free_places(b)));
  LiveBucket& bucket = owned_[b];
  bucket.keys[i].store(key, std::memory_order_relaxed);
  bucket.rows[i].store(row, std::memory_order_relaxed);
  AddBehind(home, b);
  bucket.state.store(bucket.state.load(std::memory_order_relaxed) | 1u << i, std::memory_order_release);
  return true;
}

bool LiveIndex::Erase(uint64_t key, uint32_t row, Place* place) noexcept {
  const uint64_t home = HomeBucket(key, home_buckets);
  for (uint64_t b = home; b < num_buckets; ++b) {
    LiveBucket& bucket = owned_[b];
    const uint32_t state = bucket.state.load(std::memory_order_relaxed);
    for (uint32_t used = Matches(bucket, {state & LiveBucket::kAll, 0}, key); used != 0; used &= used - 1) {
      const auto i = static_cast<uint32_t>(__builtin_ctz(used));
      if (bucket.row(i) != row) continue;
      bucket.state.store((state & ~(1u << i)) | 1u << (kBucketKeys + i), std::memory_order_release);
      for (uint64_t passed = home; passed < b; ++passed) {
        const uint32_t behind = owned_[passed].state.load(std::memory_order_relaxed);
        if (behind >= LiveBucket::kMostBehind) continue;
        owned_[passed].state.store(behind - LiveBucket::kOneBehind, std::memory_order_release);
      }
      *place = {b, i};
      return true;
    }
    if (state < LiveBucket::kOneBehind) break;
  }
  return false;
}

void LiveIndex::Free(const Place& place) noexcept {
  LiveBucket& bucket = owned_[place.bucket];
  if (strings_) texts_.Free(bucket.row(place.i));
  const uint32_t state = bucket.state.load(std::memory_order_relaxed);
  bucket.state.store(state & ~(1u << (kBucketKeys + place.i)), std::memory_order_release);
}

}  // namespace processor
