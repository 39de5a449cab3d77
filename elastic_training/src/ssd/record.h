// SPDX-License-Identifier: Apache-2.0
// A row in a file of the log, and where it is.
//
//     checksum 4 B | count 24 bits, kind 8 bits | key 8 B | last touch 4 B | values
//
// Records of a table have one length, so a number is enough to find one. The checksum is the sum of the contents, mixed with
// the serial number of the file and the number in it: a record that stands where it was not written is refused, and one
// that moves needs no new sum of its contents.
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
  // Records are not aligned to 8 bytes.
  uint32_t key_low, key_high;
  uint32_t touch;

  uint64_t key() const { return static_cast<uint64_t>(key_high) << 32 | key_low; }
  uint32_t count() const { return count_kind >> 8; }
};
static_assert(sizeof(RecordHeader) == 20, "records begin with 20 bytes");

/// Returns the length of records with `values` floats [bytes].
constexpr size_t RecordBytes(size_t values) { return sizeof(RecordHeader) + values * sizeof(float); }

/// Returns the sum of all of a record but its first 4 bytes, which are for the checksum.
inline uint32_t SumOf(const char* record, size_t bytes) {
  const auto word = [record](size_t at) {
    uint64_t bits;
    std::memcpy(&bits, record + at, sizeof(bits));
    return bits;
  };
  const auto fold = [](uint64_t a, uint64_t b) {
    const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  };
  // Four chains, since each step waits for a multiplication.
  uint64_t a = bytes, b = ~a, c = kGoldenStep, d = ~c;
  size_t at = 4;
  for (; at + 32 <= bytes; at += 32) {
    a = fold(a ^ word(at), 0xa0761d6478bd642f);
    b = fold(b ^ word(at + 8), 0xe7037ed1a0b428db);
    c = fold(c ^ word(at + 16), 0x8ebc6af09c88c6e3);
    d = fold(d ^ word(at + 24), 0x589965cc75374cc3);
  }
  for (; at + 8 <= bytes; at += 8) a = fold(a ^ word(at), 0xa0761d6478bd642f);
  if (at < bytes) {
    uint32_t rest;
    std::memcpy(&rest, record + at, sizeof(rest));
    b = fold(b ^ rest, 0xe7037ed1a0b428db);
  }
  return static_cast<uint32_t>(Mix(fold(a ^ c, b ^ kGoldenStep) ^ (d << 17 | d >> 47)) >> 32);
}

/// Returns what a place changes the sum of a record by.
inline uint32_t SumOfPlace(uint32_t serial, uint32_t slot) {
  return static_cast<uint32_t>(Mix((static_cast<uint64_t>(serial) << 32 | slot) + kGoldenStep) >> 32);
}

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_SSD_RECORD_H_
