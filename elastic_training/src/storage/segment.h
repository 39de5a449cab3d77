// SPDX-License-Identifier: Apache-2.0
// The rows of all keys whose hashes begin with the same bits: an index, and the rows that were taken and given back.
// A row belongs to the segment of its key for good, so the lock of the segment guards all that is in it.
#ifndef ELASTIC_TRAINING_STORAGE_SEGMENT_H_
#define ELASTIC_TRAINING_STORAGE_SEGMENT_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <string_view>

#include "src/base/hash.h"
#include "src/cut/row_block.h"
#include "src/optimizers/optimizer.h"
#include "src/ssd/row_log.h"
#include "src/storage/bucket_index.h"
#include "src/storage/initial_row.h"
#include "src/storage/row_layout.h"
#include "src/storage/row_slabs.h"
#include "src/storage/string_arena.h"

namespace elastic_training {

class Segment;

/// Keeps rows for a consistent cut.
class RowKeeper {
 public:
  virtual ~RowKeeper() = default;
  /// Keeps a row that is about to change; its segment is locked exclusively.
  virtual void Keep(Segment* segment, uint32_t row) = 0;
};

/// What all segments of a table share.
struct RowStore {
  RowStore(const RowLayout& layout, const Optimizer& optimizer, const InitialRow& initial)
      : layout(layout), full(layout.full_bytes), records(layout.record_bytes), optimizer(optimizer), initial(initial) {}

  char* address(uint32_t row) const { return IsRecord(row) ? records.row(row & ~kRecordBit) : full.row(row); }
  RowHeader& header(uint32_t row) const { return layout.header(address(row)); }
  float* weights(uint32_t row) const { return layout.weights(full.row(row)); }
  /// Of a record, in a table with a tier on SSD.
  SsdStub& stub(uint32_t row) const { return layout.stub(records.row(row & ~kRecordBit)); }
  bool IsOnSsd(uint32_t row) const { return IsRecord(row) && header(row).Has(kOnSsdFlag); }

  std::atomic<uint8_t>& MarksOf(uint32_t row) const {
    return IsRecord(row) ? records.marks(row & ~kRecordBit) : full.marks(row);
  }
  /// Marks a row as changed for all consumers.
  void MarkDirty(uint32_t row, RowHeader* header) const {
    header->Set(kCheckpointDirty);
    MarkChanged(row, header);
  }
  /// Marks a row as changed for publishers.
  void MarkChanged(uint32_t row, RowHeader* header) const {
    header->Set(changed_mark);
    std::atomic<uint8_t>& marks = MarksOf(row);
    if ((marks.load(std::memory_order_relaxed) & changed_mark) != 0) return;
    marks.fetch_or(static_cast<uint8_t>(changed_mark), std::memory_order_relaxed);
  }
  /// The mark of rows that a publisher's cut has still to read; between cuts no row has it.
  uint32_t pending_mark() const { return changed_mark ^ kPublisherMarks; }

  const RowLayout layout;
  RowSlabs full, records;
  const Optimizer& optimizer;
  const InitialRow& initial;
  /// Null without a tier on SSD.
  std::unique_ptr<RowLog> log;
  /// Rows and records that are in use.
  std::atomic<int64_t> full_rows{0}, record_rows{0};
  // Of the present cuts, of a checkpoint and of a publisher; these change only while all writers are stopped.
  RowKeeper* keeper = nullptr;
  RowKeeper* changes_keeper = nullptr;
  /// kCutFlag or 0.
  uint32_t cut_phase = 0;
  /// kFirstMark or kSecondMark.
  uint32_t changed_mark = kFirstMark;
};

/// A key: the number itself, or the fingerprint of a string and its bytes.
struct KeyRef {
  uint64_t key, hash;
  std::string_view text;
};

/// Numbers of rows by kind.
struct RowCounts {
  int64_t full = 0, candidates = 0, released = 0;
  /// Full rows whose weights are all zero.
  int64_t zero = 0;
  /// Rows on SSD, which are none of the others.
  int64_t ssd = 0;
};

class Segment {
 public:
  /// Rows of the smallest segment that splits; others split at up to twice as many, so that segments, which grow at the
  /// same rate, do not all split in the same batch. With many more, moving them would take milliseconds.
  static constexpr uint32_t kMinSplitRows = 1 << 14;
  static constexpr int kMaxDepth = 24;

  /// The segment of the hashes whose `depth` highest bits are `prefix`.
  Segment(RowStore* store, int depth, uint64_t prefix) : store_(*store), depth_(depth), prefix_(prefix) { DrawSplit(); }

  /// Guards all that follows: shared for functions that are const, exclusive for the others.
  mutable std::shared_mutex mutex;

  int depth() const { return depth_; }
  bool Covers(uint64_t hash) const { return hash >> (64 - depth_) == prefix_; }
  /// Returns the first hash after those of this segment; 0 after the last one.
  uint64_t end() const { return (prefix_ + 1) << (64 - depth_); }
  uint32_t size() const { return index_.size(); }
  /// Whether the segment has more rows than it shall have, or so many more that it must split before any others come.
  bool shall_split() const { return size() >= split_rows_ && depth_ < kMaxDepth; }
  bool must_split() const { return size() >= split_rows_ + split_rows_ / 2 && depth_ < kMaxDepth; }
  /// Whether the index shall grow. Calls grow few segments each, so that none takes long; adding rows grows what must.
  bool shall_grow() const { return index_.crowded() && size() != 0; }
  void Grow();
  const BucketIndex& index() const { return index_; }
  const RowCounts& counts() const { return counts_; }
  /// Memory of the index and of string keys [bytes].
  size_t bytes() const { return index_.bytes() + strings_.bytes(); }

  bool IsKey(uint32_t row, const KeyRef& key) const;
  /// Returns the row of a key, or kNoRow.
  uint32_t Find(const KeyRef& key) const {
    return index_.Find(key.hash, [&](uint32_t row) { return IsKey(row, key); });
  }
  /// Returns the bytes of a row's string key.
  std::string_view text(uint32_t row) const {
    return store_.layout.string_keys ? strings_.at(store_.layout.string(store_.address(row))) : std::string_view();
  }

  /// Must be called before a row changes or goes: cuts that have not read it keep it as it is.
  void Keep(uint32_t row) {
    const uint32_t unread = (store_.header(row).count_flags ^ store_.cut_phase) & (kCutFlag | store_.pending_mark());
    if (unread != 0) KeepForCuts(row, unread);
  }
  /// Calls `visit(row)` for the rows of some buckets of the index, from *bucket on, and moves it; returns whether buckets
  /// are left. Entries stay in their buckets until index_version() changes.
  template <typename Visit>
  bool ForEachFrom(uint32_t* bucket, const Visit& visit) const {
    return index_.ForEachFrom(bucket, visit);
  }
  uint32_t index_version() const { return index_version_; }
  /// Rows that the present cut of a checkpoint has kept and not taken over yet.
  RowBlock& kept() { return kept_; }

  /// Calls `visit(hash, row)` for all rows; it may remove or release the row that it is called for.
  template <typename Visit>
  void ForEachHash(const Visit& visit) const;

  // Those that add rows throw std::bad_alloc without a change if there is no memory.

  /// Adds a full row for a key that has none, with a count of 0, its initial weights and new slots.
  uint32_t AddFull(const KeyRef& key);
  /// Adds a candidate for a key that has no row, with a count of 0.
  uint32_t AddCandidate(const KeyRef& key);
  /// Gives a record a full row with its header; a candidate gets its initial weights, a released row zeros.
  uint32_t MakeFull(uint64_t hash, uint32_t record);
  /// Gives weights and slots of a full row back: what remains is a released row, which reads zeros.
  uint32_t Release(uint64_t hash, uint32_t row);
  /// Moves weights and slots of a full row to the log; what remains is a record. \throws SsdError without a change
  uint32_t MoveToSsd(uint64_t hash, uint32_t row);
  /// Adds the record of a row on SSD for a key that has none; the log has it already.
  uint32_t AddOnSsd(const KeyRef& key, LogPlace place, const float* values);
  /// Gives the record of a row on SSD a full row with the values that were read from the log [dim + slots].
  uint32_t MoveToMemory(uint64_t hash, uint32_t record, const float* values);
  /// Tells that the log has moved a row on SSD to another place.
  void Relocate(uint32_t record, LogPlace place) { store_.stub(record).place = place; }
  /// Removes a row.
  void Remove(uint64_t hash, uint32_t row);
  /// Keeps the flag of zero rows after their weights changed.
  void SetZero(RowHeader* header, bool zero);

  /// Moves the second half of the hashes to a new segment.
  std::unique_ptr<Segment> Split();

 private:
  /// Rows of one size that the segment may use.
  struct Pool {
    uint32_t next = 0, end = 0;  // of the chunk that it took last
    uint32_t free = kNoRow;      // first row that was given back
  };

  /// Draws how many rows this segment may have.
  void DrawSplit();
  uint32_t Take(bool record);
  uint32_t TakeRow(bool record);
  RowHeader& CopyHeader(uint32_t from, uint32_t to);
  int64_t& CountOf(const RowHeader& record);
  void GiveBack(uint32_t row);
  uint32_t Add(const KeyRef& key, bool record);
  void FillNew(uint32_t row, const RowHeader& header, bool zeros);
  void CompactStrings();
  void KeepForCuts(uint32_t row, uint32_t unread);

  RowStore& store_;
  int depth_;
  uint64_t prefix_;
  uint32_t split_rows_ = 0;
  BucketIndex index_;
  Pool full_, records_;
  StringArena strings_;
  RowCounts counts_;
  uint32_t index_version_ = 0;
  RowBlock kept_;
};

template <typename Visit>
void Segment::ForEachHash(const Visit& visit) const {
  // Keys are in the rows, far apart; their memory is asked for some rows ahead.
  constexpr uint32_t kAhead = 16;
  uint32_t ahead[kAhead], count = 0;
  const auto visit_row = [&](uint32_t row) { visit(HashKey(store_.header(row).key), row); };
  index_.ForEach([&](uint32_t row) {
    __builtin_prefetch(store_.address(row));
    uint32_t& slot = ahead[count % kAhead];
    if (count++ >= kAhead) visit_row(slot);
    slot = row;
  });
  for (uint32_t i = count > kAhead ? count - kAhead : 0; i < count; ++i) visit_row(ahead[i % kAhead]);
}

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_STORAGE_SEGMENT_H_
