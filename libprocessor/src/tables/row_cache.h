// SPDX-License-Identifier: Apache-2.0
// A cache of bounded size for rows of one table, which keeps the rows that are read most often.
//
// The places are divided into sets of twelve, and a row may be in one set only, so that one cache line tells where it is.
// Each place counts the reads of its row; a sketch counts those of rows that are not in the cache. A row takes the place of
// the least read row of its set once it has been read more often itself. So rows that a scan reads once displace nothing.
// All counts are halved after every thirty reads for each place, because what is read often changes.
#ifndef PROCESSOR_TABLES_ROW_CACHE_H_
#define PROCESSOR_TABLES_ROW_CACHE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "src/base/huge_memory.h"

namespace processor {

/// Copies rows in and out. Any thread may call all functions; one waits for others only while they copy a row of the same
/// set.
class RowCache {
 public:
  /// Memory that is not used yet is not taken from the operating system.
  /// \param bytes      of all memory of the cache, at least LeastBytes(row_bytes)
  /// \param row_bytes  of one row
  /// \param rows       how many may be in it: a cache has no more places than they need
  /// \param first      the number of the first one
  /// Throws std::bad_alloc.
  RowCache(uint64_t bytes, uint32_t row_bytes, uint64_t rows, uint32_t first = 0);
  RowCache(const RowCache&) = delete;
  RowCache& operator=(const RowCache&) = delete;

  static uint64_t LeastBytes(uint32_t row_bytes);
  /// Returns what a place for a row takes, on average.
  static double PlaceBytes(uint32_t row_bytes);

  /// Copies each row `numbers[i]` that is in the cache to `dst + i * stride`, and counts the reads of all; numbers of rows that
  /// cannot be in it are passed over.
  /// \param missing  [numbers.size()], gets the positions in `numbers` of the rows that are not in the cache
  /// \return the number of these.
  size_t Get(absl::Span<const uint32_t> numbers, size_t stride, uint8_t* dst, uint32_t* missing);

  /// Finds the positions in `numbers` of the rows that are not in the cache, without counting reads or copying.
  /// Others may add and remove rows meanwhile.
  /// \param missing  as Get(), with room for one more
  size_t FindMissing(absl::Span<const uint32_t> numbers, uint32_t* missing) const;

  /// Offers a row that Get() has not found.
  void Offer(uint32_t number, const uint8_t* bytes);

  uint64_t places() const { return uint64_t{num_sets_} * kWays; }
  uint64_t used() const { return used_.load(std::memory_order_relaxed); }
  /// Returns the bytes that the cache takes when all places are used.
  uint64_t bytes() const;

 private:
  static constexpr uint32_t kWays = 12;
  static constexpr uint32_t kCounters = 63;

  // One cache line; `lock` guards the rows, numbers and counts.
  struct alignas(64) Set {
    std::atomic<uint8_t> lock;
    uint8_t age;
    uint8_t counts[kWays];
    std::atomic<uint32_t> numbers[kWays];  // of rows, plus one; 0: a free place
  };
  static_assert(sizeof(Set) == 64);

  // The counts of some rows that are not in the cache. They are estimates, so increments that threads lose do not matter.
  struct alignas(64) SketchLine {
    std::atomic<uint8_t> age;
    std::atomic<uint8_t> counts[kCounters];
  };
  static_assert(sizeof(SketchLine) == 64);

  class Lock;

  bool Takes(uint32_t number) const { return uint64_t{number} - first_row_ < num_rows_; }
  Set& SetOf(uint32_t number) const;
  uint8_t* RowAt(const Set& set, uint32_t way) const;
  static uint32_t Find(const Set& set, uint32_t number);
  void CountRead(Set* set, uint32_t way) const;
  void Age(Set* set) const;
  uint8_t CountMissing(uint32_t number);
  void Remember(uint32_t number, uint8_t count);
  uint8_t EstimateOf(uint32_t number) const;
  void CountReads(size_t reads);

  const uint64_t num_rows_;
  const uint32_t first_row_, row_bytes_;
  uint32_t num_sets_ = 0;
  uint32_t num_lines_ = 0;
  HugeMemory sets_, sketch_, rows_;
  std::atomic<uint64_t> used_{0};
  std::atomic<uint64_t> reads_{0};
  std::atomic<uint8_t> age_{0};
};

}  // namespace processor

#endif  // PROCESSOR_TABLES_ROW_CACHE_H_
