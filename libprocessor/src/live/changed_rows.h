// SPDX-License-Identifier: Apache-2.0
// Which rows of a table have versions, and the newest version of each: a sparse array that one thread writes while others
// read.
#ifndef PROCESSOR_LIVE_CHANGED_ROWS_H_
#define PROCESSOR_LIVE_CHANGED_ROWS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "src/live/committed_memory.h"
#include "src/live/retired.h"

namespace processor {

/// A reference to a version of a row: the epoch from which on it counts, whether the key is deleted, and the row.
using VersionRef = uint64_t;

/// Rows are in groups of 64, which have a word of bits. A group with bits has a run: its bits once more, and a version for
/// each of them. So a row without versions costs one read, of a bit. A group whose bits change gets another run; the old one
/// is kept until its readers have left.
class ChangedRows {
 public:
  static constexpr uint32_t kGroupRows = 64;

  /// Makes one for the rows 0 to `rows` - 1. \return null if there is no memory.
  static std::unique_ptr<ChangedRows> Create(uint64_t rows);
  ~ChangedRows();
  ChangedRows(const ChangedRows&) = delete;
  ChangedRows& operator=(const ChangedRows&) = delete;

  // For readers, from any thread, in this order:
  void Fetch(uint32_t row) const { __builtin_prefetch(&bits_[row / kGroupRows]); }
  /// Returns the bits of the group of a row. A row that has a bit may have versions.
  uint64_t Group(uint32_t row) const { return bits_[row / kGroupRows].load(std::memory_order_acquire); }
  static bool Has(uint64_t group, uint32_t row) { return (group >> row % kGroupRows & 1) != 0; }
  void FetchRun(uint32_t row) const { __builtin_prefetch(&runs_[row / kGroupRows]); }
  void FetchNewest(uint32_t row) const {
    __builtin_prefetch(&versions_[runs_[row / kGroupRows].load(std::memory_order_relaxed)]);
  }
  /// Returns the newest version of a row, or null if it has none.
  std::atomic<VersionRef>* Newest(uint32_t row) const {
    std::atomic<VersionRef>* const run = &versions_[runs_[row / kGroupRows].load(std::memory_order_acquire)];
    const uint64_t group = run->load(std::memory_order_relaxed);
    return Has(group, row) ? run + 1 + CountBelow(group, row) : nullptr;
  }

  // For the writer:
  /// How many rows have versions.
  size_t size() const { return size_; }
  size_t bytes() const;
  static uint32_t CountOf(uint64_t group) {
    // Without an instruction that old CPUs lack.
    group -= group >> 1 & 0x5555555555555555u;
    group = (group & 0x3333333333333333u) + (group >> 2 & 0x3333333333333333u);
    return static_cast<uint32_t>(((group + (group >> 4)) & 0x0f0f0f0f0f0f0f0fu) * 0x0101010101010101u >> 56);
  }
  /// Returns how many places Set() needs to add these rows to the group of a row.
  size_t PlacesFor(uint32_t row, uint64_t rows) const;
  /// Takes memory for Set() of so many groups, with so many places altogether. \return false if there is none.
  /// \throws std::bad_alloc
  bool Reserve(size_t groups, size_t places);
  static constexpr size_t kMostPlaces = 72;
  /// Makes the group of a row have exactly the rows of these bits. New ones have version 0 at first.
  /// `generation`: of the readers that may have found the run before.
  void Set(uint32_t row, uint64_t rows, uint64_t generation) noexcept;
  /// Uses runs again that only readers of generations before `oldest` may have found.
  void Release(uint64_t oldest) noexcept;
  bool HasRetired() const { return !retired_.empty(); }

 private:
  static constexpr int kSizes = 8;
  struct Run {
    uint32_t place;
    int size;
  };

  ChangedRows() = default;
  static int SizeOf(uint64_t rows);
  static uint32_t CountBelow(uint64_t group, uint32_t row) {
    return CountOf(group & ((uint64_t{1} << row % kGroupRows) - 1));
  }
  uint32_t Take(int size) noexcept;
  void Free(Run run) noexcept;

  size_t groups_ = 0;
  size_t group_bytes_ = 0;
  std::atomic<uint64_t>* bits_ = nullptr;  // of each group
  std::atomic<uint32_t>* runs_ = nullptr;  // the first place of each; 0: none, as its bits are 0
  CommittedMemory memory_;
  std::atomic<VersionRef>* versions_ = nullptr;  // places
  uint64_t capacity_ = 0;
  uint64_t used_ = 0;           // places, from the beginning on; even
  uint32_t free_[kSizes] = {};  // the first run of each size, whose first place leads to the next; 0: none
  size_t size_ = 0;
  Retired<Run> retired_;
};

}  // namespace processor

#endif  // PROCESSOR_LIVE_CHANGED_ROWS_H_
