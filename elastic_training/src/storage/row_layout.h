// SPDX-License-Identifier: Apache-2.0
// What a row is in memory:
//
//     key 8 B | last touch 4 B | count 24 bits, flags 8 bits | bytes of a string key 8 B | weights | slots
//
// Only tables with string keys have the bytes (where they are in the arena of the segment). A row has one of two sizes:
// full, or a record without weights and slots. Records are candidates, which admission counts, and released rows, whose
// weights are all zero. The row number says which: the highest bit is set for records.
//
// Rows on SSD have neither: their two highest bits are set, and the others are a slot of their segment's index
// (ssd_index.h).
#ifndef ELASTIC_TRAINING_STORAGE_ROW_LAYOUT_H_
#define ELASTIC_TRAINING_STORAGE_ROW_LAYOUT_H_

#include <cstddef>
#include <cstdint>

namespace elastic_training {

constexpr uint32_t kRecordBit = 1u << 31;
constexpr uint32_t kNoRow = UINT32_MAX;

/// Set beside kRecordBit in the numbers of rows on SSD. No other row has so high a number.
constexpr uint32_t kSsdBit = 1u << 30;

/// Whether a row, which is none on SSD, is a record.
inline bool IsRecord(uint32_t row) { return (row & kRecordBit) != 0; }
inline bool IsOnSsd(uint32_t row) { return row >= (kRecordBit | kSsdBit) && row != kNoRow; }
inline uint32_t SsdRow(uint32_t slot) { return kRecordBit | kSsdBit | slot; }
inline uint32_t SsdSlot(uint32_t row) { return row & (kSsdBit - 1); }

/// Consumers of changes (src/cut): publishers of deltas, and incremental checkpoints.
constexpr int kPublisherConsumer = 0;
constexpr int kCheckpointConsumer = 1;
constexpr int kConsumers = 2;

enum RowFlags : uint32_t {
  /// Marks of publishers, which take turns. Rows that change get RowStore::changed_mark; those with the other one had
  /// changed when the publisher's cut began, and it has still to read them.
  kFirstMark = 1 << 0,
  kSecondMark = 1 << 2,
  kPublisherMarks = kFirstMark | kSecondMark,
  /// Changed since the last incremental checkpoint, counts and candidates included.
  kCheckpointDirty = 1 << 1,
  /// Not set in a row that was given back.
  kLiveFlag = 1 << 3,
  /// All weights are zero.
  kZeroFlag = 1 << 4,
  /// A record of a row whose weights and slots were given back.
  kReleasedFlag = 1 << 5,
  /// Differs from RowStore::cut_phase while the cut of a checkpoint has still to read the row.
  kCutFlag = 1 << 6,
};

struct RowHeader {
  static constexpr uint32_t kMaxCount = (1 << 24) - 1;

  uint64_t key;
  /// Time [s] since 2020-01-01 UTC when training last looked the row up; in a row that was given back, the next such row.
  uint32_t touch;
  uint32_t count_flags;

  uint32_t count() const { return count_flags >> 8; }
  uint32_t flags() const { return count_flags & 0xff; }
  bool Has(uint32_t flags) const { return (count_flags & flags) != 0; }
  void Set(uint32_t flags) { count_flags |= flags; }
  void Clear(uint32_t flags) { count_flags &= ~flags; }
  /// Adds to the count, which stays at its maximum.
  void Count(uint32_t occurrences) {
    const uint32_t sum = occurrences < kMaxCount - count() ? count() + occurrences : kMaxCount;
    count_flags = sum << 8 | flags();
  }
};
static_assert(sizeof(RowHeader) == 16, "the header is 16 bytes");

/// Where the bytes of a string key are.
struct StringPlace {
  uint32_t offset, size;
};

/// Sizes of the rows of a table.
struct RowLayout {
  RowLayout(size_t dim, size_t slots, bool string_keys)
      : dim(dim),
        slots(slots),
        string_keys(string_keys),
        weights_offset(sizeof(RowHeader) + (string_keys ? sizeof(StringPlace) : 0)),
        full_bytes((weights_offset + (dim + slots) * sizeof(float) + 7) / 8 * 8),
        record_bytes(weights_offset) {}

  RowHeader& header(char* row) const { return *reinterpret_cast<RowHeader*>(row); }
  StringPlace& string(char* row) const { return *reinterpret_cast<StringPlace*>(row + sizeof(RowHeader)); }
  /// [dim + slots], of a full row.
  float* weights(char* row) const { return reinterpret_cast<float*>(row + weights_offset); }

  const size_t dim, slots;
  const bool string_keys;
  const size_t weights_offset, full_bytes, record_bytes;
};

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_STORAGE_ROW_LAYOUT_H_
