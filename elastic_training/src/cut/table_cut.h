// SPDX-License-Identifier: Apache-2.0
// The rows of one table as they were when the cut of a checkpoint began, read while training goes on (copy on write by
// row).
//
// Each row has a bit that between cuts is equal in all rows (RowStore::cut_phase). A cut begins by turning the phase, so
// at once every row is one that the cut has not read. The reader walks over the segments some rows at a time, and sets the
// bit of each. A writer that comes first keeps the row in its segment before it changes (Segment::Keep), and sets the bit; new
// rows begin with it. So each row is taken once, by who comes first, and writers wait for the copying of some hundred rows.
//
// A cut of changes takes only rows that have their mark of changes. Cuts with a token take the marks away, and so do
// cuts of changes; others leave them to the next cut with a token.
#ifndef ELASTIC_TRAINING_CUT_TABLE_CUT_H_
#define ELASTIC_TRAINING_CUT_TABLE_CUT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>

#include "src/cut/row_block.h"
#include "src/cut/table_reader.h"
#include "src/cut/writers.h"

namespace elastic_training {

/// Memory of rows that writers kept, for all tables of a cut.
class CutMemory {
 public:
  /// Writers wait while more than `limit` bytes are kept.
  CutMemory(Writers* writers, size_t limit) : writers_(writers), limit_(limit) {}
  ~CutMemory() { writers_->Read(&brake_, true); }

  void Add(size_t bytes) {
    if (kept_.fetch_add(bytes) + bytes > limit_) writers_->Hold(&brake_);
  }
  void Remove(size_t bytes) { kept_.fetch_sub(bytes); }
  /// Tells that the cut was read.
  void Read() { writers_->Read(&brake_, kept_.load() <= limit_ / 2); }

  size_t limit() const { return limit_; }
  size_t kept() const { return kept_.load(); }
  /// Whether writers went on because nobody read; the cut is then lost.
  bool gave_up() const { return brake_.gave_up.load(); }

 private:
  Writers* const writers_;
  const size_t limit_;
  std::atomic<size_t> kept_{0};
  Writers::Brake brake_;
};

class TableCut final : public TableReader {
 public:
  /// \throws std::invalid_argument if another cut of the table has not ended.
  TableCut(ElasticTable* table, CutMemory* memory);
  ~TableCut() override { End(0); }

  /// Whether a cut of the changes since cut `base` is possible. Writers are stopped for this and the next two functions.
  bool HasChangesSince(uint64_t base) const;
  /// `pin`: token by which the log keeps the rows on SSD, 0 if the cut reads them. May throw std::bad_alloc, SsdError.
  void BeginFilter(uint64_t pin);
  void EndFilter() { table_->admission().EndCut(); }
  /// `tracks`: the next cut may be one of changes, so the keys that are evicted from now on are recorded.
  void Begin(bool changes_only, bool tracks);

  void Keep(Segment* segment, uint32_t row) override;

  RowBlock Read(size_t bytes) override;
  /// Brings the rows that stay on SSD to the device, and returns the run of the log; "" if none stay. \throws SsdError
  std::string Promise();
  /// Returns the state of the filter. \throws std::runtime_error if it was taken before, or the cut has ended.
  std::string TakeFilter();

  uint64_t step() const { return step_; }
  uint64_t occurrences() const { return occurrences_; }

  /// Ends the cut; what was not read is dropped. `token`: what HasChangesSince knows this cut by, 0 if it failed. Returns
  /// whether all rows were read.
  bool End(uint64_t token);

 private:
  // Takes rows on SSD of a part of the log, in the order of its files: far faster than in that of the index.
  void ScanInto(RowBlock* out);
  // Takes the rows of a part of a segment, into `out` unless it is null.
  void WalkInto(RowBlock* out);
  bool Wanted(Segment* segment, uint32_t row) const;
  void SetRead(Segment* segment, uint32_t row) const;

  CutMemory* const memory_;
  bool begun_ = false, ended_ = false, whole_ = false, changes_only_ = false, takes_marks_ = false,
       filter_taken_ = false;
  uint64_t step_ = 0, pin_ = 0;
  std::atomic<bool> out_of_memory_{false}, unreadable_{false};

  std::mutex queue_mutex_;
  std::deque<RowBlock> queue_;

  std::mutex read_mutex_;  // Guards the walk, and the scan of the log before it.
  LogScan scan_;
  bool scanned_ = false;
};

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_CUT_TABLE_CUT_H_
