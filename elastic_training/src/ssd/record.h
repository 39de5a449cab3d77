// SPDX-License-Identifier: Apache-2.0
// A row in a file of the log, and where it is.
//
//     checksum 4 B | count 24 bits, kind 8 bits | key 8 B | last touch 4 B | serial number of the file 4 B | values
//
// Records of a table have one length, a multiple of 8 bytes, so a number is enough to find one. The checksum covers the
// number in the file too: a record that stands where it was not written is refused.
#ifndef ELASTIC_TRAINING_SSD_RECORD_H_
#define ELASTIC_TRAINING_SSD_RECORD_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "src/base/hash.h"

namespace elastic_training {

/// Where a record is: the file in the upper bits, the number in the file in the lower ones. The highest bit is never set.
using LogPlace = uint32_t;
constexpr uint32_t kLogSlotBits = 20;
constexpr uint32_t kMostLogSlots = 1u << kLogSlotBits;
constexpr uint32_t kMostLogFiles = 1u << (31 - kLogSlotBits);
inline uint32_t FileOf(LogPlace place) { return place >> kLogSlotBits; }
inline uint32_t SlotOf(LogPlace place) { return place & (kMostLogSlots - 1); }

struct RecordHeader {
  uint32_t checksum;
  uint32_t count_kind;
  uint64_t key;
  uint32_t touch;
  uint32_t serial;

  uint32_t count() const { return count_kind >> 8; }
  uint8_t kind() const { return static_cast<uint8_t>(count_kind); }
};
static_assert(sizeof(RecordHeader) == 24, "records begin with 24 bytes");

/// Returns the length of records with `values` floats [bytes].
constexpr size_t RecordBytes(size_t values) { return (sizeof(RecordHeader) + values * sizeof(float) + 7) / 8 * 8; }

/// Returns the checksum of a record of `bytes` bytes, which does not depend on the one that it has.
inline uint32_t ChecksumOf(const char* record, size_t bytes, uint32_t slot) {
  const auto word = [record](size_t at) {
    uint64_t bits;
    std::memcpy(&bits, record + at, sizeof(bits));
    return bits;
  };
  const auto fold = [](uint64_t a, uint64_t b) {
    const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  };
  // Two chains, since each step waits for a multiplication.
  uint64_t even = (word(0) >> 32 | static_cast<uint64_t>(slot) << 32) ^ kGoldenStep, odd = bytes;
  size_t at = 8;
  for (; at + 16 <= bytes; at += 16) {
    even = fold(even ^ word(at), 0xa0761d6478bd642f);
    odd = fold(odd ^ word(at + 8), 0xe7037ed1a0b428db);
  }
  if (at < bytes) even = fold(even ^ word(at), 0x8ebc6af09c88c6e3);
  return static_cast<uint32_t>(Mix(even ^ (odd << 17 | odd >> 47)) >> 32);
}

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_SSD_RECORD_H_
