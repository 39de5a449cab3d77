// SPDX-License-Identifier: Apache-2.0
#include "src/storage/ssd_index.h"

#include <algorithm>
#include <cmath>

namespace elastic_training {
namespace {

constexpr double kMostFull = 0.96;
constexpr int kTouchBits = 20, kCountBits = 8, kFlagBits = 4;
// Units of 1024 s reach until 2054.
constexpr int kTouchShift = 10;
// Counts have 5 bits of exponent and 3 of mantissa; norms have four steps for each factor of two, from 2^-40 on.
constexpr uint32_t kMantissa = 3;
constexpr float kNormSteps = 4, kLeastNorm = -40;

uint32_t PackTouch(uint32_t touch) {
  const uint64_t units = (uint64_t{touch} + (1u << kTouchShift) - 1) >> kTouchShift;
  return static_cast<uint32_t>(std::min<uint64_t>(units, (1u << kTouchBits) - 1));
}
uint32_t UnpackTouch(uint32_t units) { return units << kTouchShift; }

uint32_t PackCount(uint32_t count) {
  if (count < 1u << (kMantissa + 1)) return count;
  uint32_t exponent = 31 - __builtin_clz(count) - kMantissa;
  uint32_t mantissa = (count + (1u << exponent) - 1) >> exponent;
  if (mantissa >> (kMantissa + 1) != 0) {
    mantissa >>= 1;
    ++exponent;
  }
  return (exponent + 1) << kMantissa | (mantissa & ((1u << kMantissa) - 1));
}
uint32_t UnpackCount(uint32_t packed) {
  if (packed < 1u << (kMantissa + 1)) return packed;
  const uint32_t count = (1u << kMantissa | (packed & ((1u << kMantissa) - 1))) << ((packed >> kMantissa) - 1);
  return std::min(count, RowHeader::kMaxCount);
}

// The largest stands for what is larger, or not finite.
float UnpackNorm(uint8_t packed) {
  if (packed == 0) return 0;
  return packed == 255 ? INFINITY : std::exp2(static_cast<float>(packed) / kNormSteps + kLeastNorm);
}
uint8_t PackNorm(float norm) {
  if (norm == 0) return 0;
  float steps = std::max(std::ceil((std::log2(norm) - kLeastNorm) * kNormSteps), 1.0f);
  // The logarithm may have been rounded down.
  if (steps < 255 && UnpackNorm(static_cast<uint8_t>(steps)) < norm) ++steps;
  return static_cast<uint8_t>(steps < 255 ? steps : 255);
}

// Marks of consumers and of cuts.
uint32_t PackFlags(uint32_t flags) { return (flags & 7) | ((flags & kCutFlag) != 0 ? 8 : 0); }
uint32_t UnpackFlags(uint32_t packed) {
  return (packed & 7) | ((packed & 8) != 0 ? uint32_t{kCutFlag} : 0) | kLiveFlag;
}
static_assert((kPublisherMarks | kCheckpointDirty) == 7, "three flags are the lowest bits");

}  // namespace

uint32_t RoundedTouch(uint32_t touch) { return UnpackTouch(PackTouch(touch)); }
uint32_t RoundedCount(uint32_t count) { return UnpackCount(PackCount(count)); }
float RoundedNorm(float norm) { return UnpackNorm(PackNorm(norm)); }

SsdIndex::SsdIndex(uint32_t entries, int depth) : depth_(depth) {
  bucket_count_ = static_cast<uint32_t>(entries / (kMostFull * kEntries)) + 1;
  limit_ = static_cast<uint32_t>(bucket_count_ * (kMostFull * kEntries));
  memory_ = LineMemory<Bucket>(bucket_count_);
}

uint32_t SsdIndex::Take(uint64_t hash) {
  uint32_t b = home(hash), free;
  while ((free = Matches(memory_[b], 0)) == 0) {
    ++memory_[b].passed;
    b = next(b);
  }
  const uint32_t i = __builtin_ctz(free);
  memory_[b].tags[i] = tag(hash);
  memory_[b].hashes[i] = static_cast<uint32_t>(hash >> 32);
  ++size_;
  return b * kEntries + i;
}

uint32_t SsdIndex::Insert(const SsdEntry& entry) {
  const uint32_t slot = Take(entry.hash), i = slot % kEntries;
  Bucket& bucket = memory_[slot / kEntries];
  bucket.norms[i] = PackNorm(entry.norm);
  bucket.places[i] = entry.place | ((entry.flags & kZeroFlag) != 0 ? kZeroBit : 0);
  bucket.marks[i] =
      (PackTouch(entry.touch) << kCountBits | PackCount(entry.count)) << kFlagBits | PackFlags(entry.flags);
  return slot;
}

uint32_t SsdIndex::InsertFrom(const SsdIndex& other, uint32_t from) {
  const Bucket& source = other.memory_[from / kEntries];
  const uint32_t slot = Take(other.hash(from)), i = slot % kEntries, j = from % kEntries;
  Bucket& bucket = memory_[slot / kEntries];
  bucket.norms[i] = source.norms[j];
  bucket.places[i] = source.places[j];
  bucket.marks[i] = source.marks[j];
  return slot;
}

void SsdIndex::Erase(uint32_t slot) {
  for (uint32_t b = home(hash(slot)); b != slot / kEntries; b = next(b)) --memory_[b].passed;
  memory_[slot / kEntries].tags[slot % kEntries] = 0;
  --size_;
}

SsdEntry SsdIndex::at(uint32_t slot) const {
  const Bucket& bucket = memory_[slot / kEntries];
  const uint32_t i = slot % kEntries, marks = bucket.marks[i] >> kFlagBits;
  return {hash(slot),
          place(slot),
          flags(slot),
          UnpackTouch(marks >> kCountBits),
          UnpackCount(marks & ((1u << kCountBits) - 1)),
          UnpackNorm(bucket.norms[i])};
}

uint32_t SsdIndex::flags(uint32_t slot) const {
  const Bucket& bucket = memory_[slot / kEntries];
  const uint32_t i = slot % kEntries;
  return UnpackFlags(bucket.marks[i] & ((1u << kFlagBits) - 1)) |
         ((bucket.places[i] & kZeroBit) != 0 ? uint32_t{kZeroFlag} : 0);
}

void SsdIndex::set_flags(uint32_t slot, uint32_t flags) {
  Bucket& bucket = memory_[slot / kEntries];
  const uint32_t i = slot % kEntries;
  bucket.marks[i] = (bucket.marks[i] >> kFlagBits << kFlagBits) | PackFlags(flags);
  bucket.places[i] = (bucket.places[i] & ~kZeroBit) | ((flags & kZeroFlag) != 0 ? kZeroBit : 0);
}

}  // namespace elastic_training
