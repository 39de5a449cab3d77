// SPDX-License-Identifier: Apache-2.0
#include "src/tables/row_cache.h"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "src/base/mapped_memory.h"
#include "src/tables/table_index.h"

namespace processor {
namespace {

// Rows whose memory is on the way while others are copied.
constexpr size_t kRowsAhead = 32;
// Counts are halved after so many reads for each place.
constexpr uint64_t kReadsOfPeriod = 30;
// A sketch has a line, of 63 counters, for so many places: about four counters for each.
constexpr uint64_t kPlacesOfLine = 16;
constexpr uint32_t kCacheLine = 64;

// Halves a count once for each period that has passed.
uint8_t Halved(uint8_t count, uint8_t periods) { return periods >= 8 ? 0 : static_cast<uint8_t>(count >> periods); }

}  // namespace

// Held while a row is copied. Its holder may have lost its CPU, so others give up theirs soon.
class RowCache::Lock {
 public:
  explicit Lock(Set* set) : set_(set) {
    for (int tries = 0; set_->lock.exchange(1, std::memory_order_acquire) != 0;) {
      while (set_->lock.load(std::memory_order_relaxed) != 0) {
        if (++tries % 64 == 0) sched_yield();
      }
    }
  }
  ~Lock() { set_->lock.store(0, std::memory_order_release); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  Set* const set_;
};

uint64_t RowCache::LeastBytes(uint32_t row_bytes) {
  return sizeof(Set) + sizeof(SketchLine) + uint64_t{kWays} * row_bytes;
}

double RowCache::PlaceBytes(uint32_t row_bytes) {
  return static_cast<double>(sizeof(Set)) / kWays + static_cast<double>(sizeof(SketchLine)) / kPlacesOfLine + row_bytes;
}

RowCache::RowCache(uint64_t bytes, uint32_t row_bytes, uint64_t rows, uint32_t first)
    : num_rows_(rows), first_row_(first), row_bytes_(row_bytes) {
  const uint64_t of_set = sizeof(Set) + sizeof(SketchLine) * kWays / kPlacesOfLine + uint64_t{kWays} * row_bytes;
  // Sets do not get equal numbers of rows, so a cache for a whole table has some more places.
  const uint64_t enough = rows / kWays + rows / kWays / 2 + 8;
  num_sets_ = static_cast<uint32_t>(std::max<uint64_t>(1, std::min({bytes / of_set, enough, uint64_t{UINT32_MAX}})));
  num_lines_ = static_cast<uint32_t>(std::max<uint64_t>(1, places() / kPlacesOfLine));
  sets_ = HugeMemory(size_t{num_sets_} * sizeof(Set));
  sketch_ = HugeMemory(size_t{num_lines_} * sizeof(SketchLine));
  rows_ = HugeMemory(places() * row_bytes_);
  // The first rows lie scattered: each would make the system clear a large page, so that the first request waits for the
  // memory of the whole cache. An error changes nothing.
  if (rows_.size() >= kLeastMapped) madvise(rows_.data(), rows_.size(), MADV_NOHUGEPAGE);
}

uint64_t RowCache::bytes() const {
  return num_sets_ * uint64_t{sizeof(Set)} + num_lines_ * uint64_t{sizeof(SketchLine)} + places() * row_bytes_;
}

RowCache::Set& RowCache::SetOf(uint32_t number) const {
  return reinterpret_cast<Set*>(sets_.data())[HomeBucket(number, num_sets_)];
}

uint8_t* RowCache::RowAt(const Set& set, uint32_t way) const {
  const auto number = static_cast<uint64_t>(&set - reinterpret_cast<const Set*>(sets_.data()));
  return rows_.data() + (number * kWays + way) * row_bytes_;
}

// Returns the place of a row in its set, or kWays. No branches: which one it is cannot be predicted.
uint32_t RowCache::Find(const Set& set, uint32_t number) {
  uint32_t found = 1u << kWays;
  for (uint32_t way = 0; way < kWays; ++way) {
    found |= static_cast<uint32_t>(set.numbers[way].load(std::memory_order_relaxed) == number + 1) << way;
  }
  return static_cast<uint32_t>(__builtin_ctz(found));
}

void RowCache::Age(Set* set) const {
  const uint8_t age = age_.load(std::memory_order_relaxed);
  const auto periods = static_cast<uint8_t>(age - set->age);
  if (periods == 0) return;
  for (uint8_t& count : set->counts) count = Halved(count, periods);
  set->age = age;
}

void RowCache::CountRead(Set* set, uint32_t way) const {
  Age(set);
  set->counts[way] = static_cast<uint8_t>(std::min(set->counts[way] + 1, UINT8_MAX));
}

namespace {

// The counters of a row: three of one line, so that an estimate reads one cache line.
struct SketchPlaces {
  SketchPlaces(uint32_t number, uint32_t num_lines, uint32_t num_counters) {
    const uint64_t mixed = MixKey(~uint64_t{number});
    line = static_cast<uint32_t>((mixed >> 32) * num_lines >> 32);
    for (uint32_t i = 0; i < 3; ++i) counters[i] = static_cast<uint32_t>(mixed >> 10 * i & 1023) * num_counters >> 10;
  }
  uint32_t line;
  uint32_t counters[3];
};

}  // namespace

uint8_t RowCache::EstimateOf(uint32_t number) const {
  const SketchPlaces places(number, num_lines_, kCounters);
  const SketchLine& line = reinterpret_cast<const SketchLine*>(sketch_.data())[places.line];
  uint8_t least = UINT8_MAX;
  for (const uint32_t c : places.counters) least = std::min(least, line.counts[c].load(std::memory_order_relaxed));
  const auto periods = age_.load(std::memory_order_relaxed) - line.age.load(std::memory_order_relaxed);
  return Halved(least, static_cast<uint8_t>(periods));
}

uint8_t RowCache::CountMissing(uint32_t number) {
  const SketchPlaces places(number, num_lines_, kCounters);
  SketchLine& line = reinterpret_cast<SketchLine*>(sketch_.data())[places.line];
  const uint8_t age = age_.load(std::memory_order_relaxed);
  const auto periods = static_cast<uint8_t>(age - line.age.load(std::memory_order_relaxed));
  if (periods != 0) {
    line.age.store(age, std::memory_order_relaxed);
    for (auto& count : line.counts) {
      count.store(Halved(count.load(std::memory_order_relaxed), periods), std::memory_order_relaxed);
    }
  }
  const uint8_t before = EstimateOf(number);
  if (before == UINT8_MAX) return before;
  for (const uint32_t c : places.counters) {
    // Only the least ones: the others have counted other rows as well.
    if (line.counts[c].load(std::memory_order_relaxed) == before) {
      line.counts[c].store(static_cast<uint8_t>(before + 1), std::memory_order_relaxed);
    }
  }
  return static_cast<uint8_t>(before + 1);
}

void RowCache::Remember(uint32_t number, uint8_t count) {
  const SketchPlaces places(number, num_lines_, kCounters);
  SketchLine& line = reinterpret_cast<SketchLine*>(sketch_.data())[places.line];
  for (const uint32_t c : places.counters) {
    if (line.counts[c].load(std::memory_order_relaxed) < count) line.counts[c].store(count, std::memory_order_relaxed);
  }
}

void RowCache::CountReads(size_t reads) {
  const uint64_t period = kReadsOfPeriod * places();
  const uint64_t before = reads_.fetch_add(reads, std::memory_order_relaxed);
  const uint64_t passed = (before + reads) / period - before / period;
  if (passed != 0) age_.fetch_add(static_cast<uint8_t>(std::min<uint64_t>(passed, 8)), std::memory_order_relaxed);
}

size_t RowCache::Get(absl::Span<const uint32_t> numbers, size_t stride, uint8_t* dst, uint32_t* missing) {
  size_t num_missing = 0, reads = 0;
  Set* sets[kRowsAhead];
  for (size_t first = 0; first < numbers.size(); first += kRowsAhead) {
    const size_t count = std::min(kRowsAhead, numbers.size() - first);
    const uint32_t* const of_block = numbers.data() + first;
    for (size_t i = 0; i < count; ++i) {
      sets[i] = Takes(of_block[i]) ? &SetOf(of_block[i]) : nullptr;
      __builtin_prefetch(sets[i]);
    }
    for (size_t i = 0; i < count; ++i) {
      if (sets[i] == nullptr) continue;
      const uint32_t way = Find(*sets[i], of_block[i]);
      if (way == kWays) continue;
      const uint8_t* const row = RowAt(*sets[i], way);
      for (uint32_t offset = 0; offset < row_bytes_; offset += kCacheLine) __builtin_prefetch(row + offset);
    }
    for (size_t i = 0; i < count; ++i) {
      if (sets[i] == nullptr) continue;
      ++reads;
      const Lock lock(sets[i]);
      const uint32_t way = Find(*sets[i], of_block[i]);
      if (way == kWays) {
        missing[num_missing++] = static_cast<uint32_t>(first + i);
        continue;
      }
      CountRead(sets[i], way);
      std::memcpy(dst + (first + i) * stride, RowAt(*sets[i], way), row_bytes_);
    }
  }
  if (reads != 0) CountReads(reads);  // a table with several widths has a cache for each
  return num_missing;
}

size_t RowCache::FindMissing(absl::Span<const uint32_t> numbers, uint32_t* missing) const {
  size_t num_missing = 0;
  for (size_t first = 0; first < numbers.size(); first += kRowsAhead) {
    const size_t end = std::min(first + kRowsAhead, numbers.size());
    for (size_t i = first; i < end; ++i) {
      if (Takes(numbers[i])) __builtin_prefetch(&SetOf(numbers[i]));
    }
    for (size_t i = first; i < end; ++i) {
      missing[num_missing] = static_cast<uint32_t>(i);
      num_missing += Takes(numbers[i]) && Find(SetOf(numbers[i]), numbers[i]) == kWays;
    }
  }
  return num_missing;
}

void RowCache::Offer(uint32_t number, const uint8_t* bytes) {
  const uint8_t count = CountMissing(number);
  Set* const set = &SetOf(number);
  const Lock lock(set);
  if (Find(*set, number) != kWays) return;  // another thread was faster
  Age(set);
  uint32_t way = 0;
  for (uint32_t w = 0; w < kWays; ++w) {
    if (set->numbers[w].load(std::memory_order_relaxed) == 0) {
      way = w;
      used_.fetch_add(1, std::memory_order_relaxed);
      break;
    }
    if (set->counts[w] < set->counts[way]) way = w;
    if (w + 1 == kWays && count <= set->counts[way]) return;
  }
  // Its count is kept, so that it comes back if it is read again.
  const uint32_t before = set->numbers[way].load(std::memory_order_relaxed);
  if (before != 0) Remember(before - 1, set->counts[way]);
  set->numbers[way].store(number + 1, std::memory_order_relaxed);
  set->counts[way] = count;
  std::memcpy(RowAt(*set, way), bytes, row_bytes_);
}

}  // namespace processor
