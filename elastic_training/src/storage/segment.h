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
#include "src/storage/segment_mutex.h"
#include "src/storage/ssd_index.h"
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
      : layout(layout),
        full(layout.full_bytes),
        records(layout.record_bytes, kSsdBit),
        optimizer(optimizer),
        initial(initial) {}

  // Not for rows on SSD, of which segments know.
  char* address(uint32_t row) const { return IsRecord(row) ? records.row(row & ~kRecordBit) : full.row(row); }
  RowHeader& header(uint32_t row) const { return layout.header(address(row)); }
  float* weights(uint32_t row) const { return layout.weights(full.row(row)); }

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
  /// Memory of the indexes of rows on SSD.
  std::atomic<int64_t> ssd_index_bytes{0};
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

/// A row on SSD that was read.
struct RowOnSsd {
  RecordHeader header;
  /// [dim + slots]
  const float* values;
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
  mutable SegmentMutex mutex;

  int depth() const { return depth_; }
  bool Covers(uint64_t hash) const { return hash >> (64 - depth_) == prefix_; }
  /// Returns the first hash after those of this segment; 0 after the last one.
  uint64_t end() const { return (prefix_ + 1) << (64 - depth_); }
  uint32_t size() const { return index_.size() + ssd_.size(); }
  /// Whether the segment has more rows than it shall have, or so many more that it must split before any others come.
  bool shall_split() const { return size() >= split_rows_ && depth_ < kMaxDepth; }
  bool must_split() const { return size() >= split_rows_ + split_rows_ / 2 && depth_ < kMaxDepth; }
  /// Whether the index shall grow. Calls grow few segments each, so that none takes long; adding rows grows what must.
  bool shall_grow() const { return index_.crowded() && index_.size() != 0; }
  void Grow();
  /// Of the rows that are not on SSD, and of those that are.
  const BucketIndex& index() const { return index_; }
  const SsdIndex& ssd() const { return ssd_; }
  const RowCounts& counts() const { return counts_; }
  /// Memory of the indexes and of string keys [bytes].
  size_t bytes() const { return index_.bytes() + ssd_.bytes() + strings_.bytes(); }

  /// Asks for the memory of the indexes that Find will read.
  void Prefetch(uint64_t hash) const {
    index_.Prefetch(hash);
    ssd_.Prefetch(hash);
  }
  /// Of a row that is not on SSD.
  bool IsKey(uint32_t row, const KeyRef& key) const;
  /// Returns the row of a key, or kNoRow. A row on SSD may be that of another key, unless keys are strings: its record
  /// tells. No other row is that of the key then.
  uint32_t Find(const KeyRef& key) const {
    const uint32_t row = index_.Find(key.hash, [&](uint32_t row) { return IsKey(row, key); });
    return row != kNoRow || ssd_.size() == 0 ? row : FindOnSsd(key);
  }
  /// Returns the row on SSD that is at a place of the log, or kNoRow.
  uint32_t FindPlace(uint64_t hash, LogPlace place) const {
    return RowOf(ssd_.Find(hash, [&](uint32_t slot) { return ssd_.place(slot) == place; }));
  }
  /// Returns the bytes of a row's string key.
  std::string_view text(uint32_t row) const {
    if (!store_.layout.string_keys) return {};
    return strings_.at(IsOnSsd(row) ? ssd_.text(SsdSlot(row)) : store_.layout.string(store_.address(row)));
  }
  /// Returns the RowFlags of a row.
  uint32_t flags(uint32_t row) const { return IsOnSsd(row) ? ssd_.flags(SsdSlot(row)) : store_.header(row).flags(); }
  /// Changes these flags; Keep and the functions that change rows have done what depends on them.
  void SetFlags(uint32_t row, uint32_t flags) { ChangeFlags(row, flags, 0); }
  void ClearFlags(uint32_t row, uint32_t flags) { ChangeFlags(row, 0, flags); }
  /// Marks a row as changed for publishers.
  void MarkChanged(uint32_t row) {
    if (IsOnSsd(row)) {
      SetFlags(row, store_.changed_mark);
    } else {
      store_.MarkChanged(row, &store_.header(row));
    }
  }

  /// Must be called before a row changes or goes: cuts that have not read it keep it as it is.
  void Keep(uint32_t row) {
    const uint32_t unread = (flags(row) ^ store_.cut_phase) & (kCutFlag | store_.pending_mark());
    if (unread != 0) KeepForCuts(row, unread);
  }
  /// Calls `visit(row)` for the rows of some buckets of the index, from *bucket on, and moves it; returns whether buckets
  /// are left. Entries stay in their buckets until index_version() changes.
  template <typename Visit>
  bool ForEachFrom(uint32_t* bucket, const Visit& visit) const;
  uint32_t index_version() const { return index_version_; }
  /// Rows that the present cut of a checkpoint has kept and not taken over yet.
  RowBlock& kept() { return kept_; }

  /// Calls `visit(hash, row)` for all rows; it may remove or release the row that it is called for. Of the hashes of rows on
  /// SSD, it gets the bits that their index has.
  template <typename Visit>
  void ForEachHash(const Visit& visit) const;
  /// As ForEachHash, for the rows that are on SSD, and for the others. These may also be moved to SSD, which may change the
  /// numbers of all rows there.
  template <typename Visit>
  void ForEachOnSsd(const Visit& visit) const;
  template <typename Visit>
  void ForEachInMemory(const Visit& visit) const;

  // Those that add rows throw std::bad_alloc without a change if there is no memory.

  /// Adds a full row for a key that has none, with a count of 0, its initial weights and new slots.
  uint32_t AddFull(const KeyRef& key);
  /// Adds a candidate for a key that has no row, with a count of 0.
  uint32_t AddCandidate(const KeyRef& key);
  /// Gives a record a full row with its header; a candidate gets its initial weights, a released row zeros.
  uint32_t MakeFull(uint64_t hash, uint32_t record);
  /// Gives weights and slots of a full row back: what remains is a released row, which reads zeros.
  uint32_t Release(uint64_t hash, uint32_t row);
  /// Moves a full row to the log, unless the index has another one with the same bits: the row then stays as it is.
  /// Returns whether it moved. \throws SsdError without a change
  bool MoveToSsd(uint64_t hash, uint32_t row);
  /// Adds a row on SSD for a key that has none; the log has it already.
  uint32_t AddOnSsd(const KeyRef& key, LogPlace place, const RowOnSsd& read);
  /// Moves a row on SSD, as it was read from the log, to memory.
  uint32_t MoveToMemory(uint32_t row, const RowOnSsd& read);
  /// Tells that the log has moved a row on SSD to another place.
  void Relocate(uint32_t row, LogPlace place) { ssd_.set_place(SsdSlot(row), place); }
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
  int64_t& CountOf(const RowHeader& record);
  void ChangeFlags(uint32_t row, uint32_t set, uint32_t clear);
  uint32_t FindOnSsd(const KeyRef& key) const;
  static uint32_t RowOf(uint32_t slot) { return slot == SsdIndex::kNone ? kNoRow : SsdRow(slot); }
  float NormOfRow(const float* weights) const;
  SsdIndex NewSsdIndex(size_t rows, int depth, uint64_t prefix) const;
  void TakeSsdIndex(SsdIndex&& index);
  void GrowSsd();
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
  SsdIndex ssd_;
  Pool full_, records_;
  StringArena strings_;
  RowCounts counts_;
  uint32_t index_version_ = 0;
  RowBlock kept_;
};

template <typename Visit>
void Segment::ForEachHash(const Visit& visit) const {
  ForEachOnSsd(visit);
  ForEachInMemory(visit);
}

template <typename Visit>
void Segment::ForEachOnSsd(const Visit& visit) const {
  ssd_.ForEach([&](uint32_t slot) { visit(ssd_.hash(slot), SsdRow(slot)); });
}

template <typename Visit>
bool Segment::ForEachFrom(uint32_t* bucket, const Visit& visit) const {
  const uint32_t first = index_.buckets(), buckets = ssd_.buckets();
  if (*bucket < first) return index_.ForEachFrom(bucket, visit) || buckets != 0;
  constexpr uint32_t kSome = 16;
  const uint32_t begin = *bucket - first, end = buckets - begin > kSome ? begin + kSome : buckets;
  ssd_.ForEach(begin, end, [&](uint32_t slot) { visit(SsdRow(slot)); });
  *bucket = first + end;
  return end < buckets;
}

template <typename Visit>
void Segment::ForEachInMemory(const Visit& visit) const {
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
