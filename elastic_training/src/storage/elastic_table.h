// SPDX-License-Identifier: Apache-2.0
// A table of rows that grows by itself: any key may be looked up, and gets a row when training meets it and the filter
// admits it. Any number of threads may read and train at once; no row is ever read torn.
//
// Functions throw std::bad_alloc if the machine has no memory; the table is then as before, or has some of the keys.
#ifndef ELASTIC_TRAINING_STORAGE_ELASTIC_TABLE_H_
#define ELASTIC_TRAINING_STORAGE_ELASTIC_TABLE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "src/admission/admission.h"
#include "src/config/table_config.h"
#include "src/optimizers/optimizer.h"
#include "src/storage/key_batch.h"
#include "src/storage/segment_directory.h"

namespace elastic_training {

/// What a key has in the table.
enum class RowKind : uint8_t {
  kAbsent = 0,
  kFull = 1,
  /// Zero weights, of which nothing is stored.
  kReleased = 2,
  /// Counted by admission, and not admitted yet.
  kCandidate = 3,
};

/// A row that a visitor sees, valid during the call.
struct RowView {
  /// Of a row on SSD that was not read: what the index has of the hash of its key (SsdIndex::BitsOf).
  uint64_t key;
  std::string_view text;
  RowKind kind;
  /// Of a row on SSD that was not read, these and the norm are rounded up.
  uint32_t touch, count;
  /// [dim] and [slots]; null unless the row is full, or if it is on SSD and was not read.
  const float *weights, *slots;
  /// Of the weights of a row that was not read.
  float norm = 0;
};

/// What a sweep does with a row.
enum class RowFate : uint8_t { kKeep, kEvict, kRelease, kMoveToSsd };

struct LookupRequest {
  KeyBatch keys;
  /// Count occurrences, admit and insert; otherwise nothing is written.
  bool training = false;
  /// Positions to leave out: they read zeros [count]; null: none.
  const uint8_t* masked = nullptr;
  /// Time [s] since 2020-01-01 UTC.
  uint32_t now = 0;
  /// Result [count, dim].
  float* rows = nullptr;
  /// Results of training, for Update: row numbers, -1 where there is nothing to update [count]; the first position with the
  /// same key [count].
  int64_t* places = nullptr;
  int32_t* firsts = nullptr;
};

struct UpdateRequest {
  KeyBatch keys;
  /// Of the lookup [count].
  const int64_t* places = nullptr;
  const int32_t* firsts = nullptr;
  /// Position i has the gradient gradients[gradient_of[i]] · scales[i]. Null: i, and 1.
  const float* gradients = nullptr;
  const int32_t* gradient_of = nullptr;
  const float* scales = nullptr;
  /// [Optimizer::hyper_size()]
  const float* hyper = nullptr;
};

struct UpdateResult {
  /// Position of a gradient that is not finite, if the table stops on them; nothing was updated then.
  int64_t not_finite = -1;
  size_t updated = 0;
};

/// Contents of rows for Insert and Read; any pointer may be null.
struct RowContents {
  float *weights = nullptr, *slots = nullptr;  // [count, dim], [count, slots]
  int64_t *touches = nullptr, *counts = nullptr, *kinds = nullptr;
};

class ElasticTable {
 public:
  /// \throws std::invalid_argument that names the field of the configuration.
  explicit ElasticTable(TableConfig config);

  const TableConfig& config() const { return config_; }
  const RowLayout& layout() const { return store_.layout; }
  const Optimizer& optimizer() const { return *optimizer_; }
  Admission& admission() { return *admission_; }

  void Lookup(const LookupRequest& request);
  /// Applies one optimizer step to each distinct key; `firsts` must be positions (the caller checks).
  UpdateResult Update(const UpdateRequest& request);

  /// Number of updates so far.
  uint64_t step() const { return step_.load(std::memory_order_relaxed); }
  void set_step(uint64_t step) { step_.store(step, std::memory_order_relaxed); }
  uint64_t occurrences() const { return occurrences_.load(std::memory_order_relaxed); }
  void set_occurrences(uint64_t occurrences) { occurrences_.store(occurrences, std::memory_order_relaxed); }

  /// Writes rows, past admission. What is null is, for a new row, initial; for one that is present, as it was. The last of
  /// equal keys counts.
  void Insert(const KeyBatch& keys, const RowContents& contents);
  /// Reads rows; keys without a full row read the default row or, if released, zeros; slots read 0.
  void Read(const KeyBatch& keys, const RowContents& contents) const;
  /// Returns what admission knows of each key, as if it had no row [count]. `now`: [s] since 2020-01-01 UTC.
  void EstimateAdmission(const KeyBatch& keys, uint32_t now, AdmissionEstimate* estimates) const;
  /// Removes rows and candidates; returns how many there were.
  size_t Evict(const KeyBatch& keys);

  /// Calls `visit` for all rows of the segment that has hash `cursor`, locked for writers. Returns the first hash after
  /// that segment, 0 after the last one: so a pass over the table begins and ends with 0, and visits each row that is
  /// there all the time once.
  uint64_t Visit(uint64_t cursor, const std::function<void(const RowView&)>& visit) const;
  /// As Visit, without reading rows that are on SSD.
  uint64_t VisitHeaders(uint64_t cursor, const std::function<void(const RowView&)>& visit) const;
  /// As VisitHeaders, with the segment locked, and does what `decide` returns for each row.
  uint64_t Sweep(uint64_t cursor, const std::function<RowFate(const RowView&)>& decide);

  /// Begins to record changes for a publisher (src/cut/changes_cut.h). All rows count as changed.
  /// \throws std::invalid_argument while a publisher's cut is being read
  void Follow();
  /// Ends that: evicted keys are recorded for publishers no more.
  void Unfollow();

  /// The log on SSD; null without one.
  RowLog* log() const { return store_.log.get(); }
  /// Memory of rows and records that are in use and of the index of rows on SSD [bytes], without other indexes and string
  /// keys; takes no locks.
  size_t row_memory() const {
    return static_cast<size_t>(store_.full_rows.load(std::memory_order_relaxed)) * layout().full_bytes +
           static_cast<size_t>(store_.record_rows.load(std::memory_order_relaxed)) * layout().record_bytes +
           ssd_index_bytes();
  }
  /// Memory of the index of rows on SSD [bytes].
  size_t ssd_index_bytes() const { return static_cast<size_t>(store_.ssd_index_bytes.load(std::memory_order_relaxed)); }
  int64_t rows_in_memory() const { return store_.full_rows.load(std::memory_order_relaxed); }
  /// Asks the device for rows on SSD that a call will look up.
  void Prefetch(const KeyBatch& keys) const;
  /// Adds rows that a checkpoint has left on SSD at `places` [count]; of numbers, the keys may be those that RowView has.
  /// The log has resumed the checkpoint. \throws SsdError if one is not there.
  void Adopt(const KeyBatch& keys, const LogPlace* places);
  /// Takes the new places of rows that the log has moved, if they are still where they were.
  void MoveInLog(RowLog::Moved* rows, size_t count);

  /// Numbers of rows by kind.
  RowCounts counts() const;
  /// Memory [bytes]: chunks of rows, indexes, string keys, the filter.
  size_t bytes() const;
  /// Memory of chunks that holds no rows now, if the table has `rows` [bytes]; new rows take it.
  size_t free_bytes(const RowCounts& rows) const;
  /// Returns the counters of the table and of its filter as a JSON object.
  nlohmann::json Stats() const;

 private:
  friend class ChangesCut;
  friend class TableCut;
  friend class TableReader;
  // Evicted keys that wait for a consumer: more would cost too much memory.
  static constexpr size_t kMostTombstones = size_t{1} << 24;

  struct LookupCounts {
    uint64_t admitted = 0, refused = 0;
    /// How many more segments the call may grow or split before they must.
    int growths = 2;
  };
  struct Tombstones {
    bool active = false;
    // Whether there were more than kMostTombstones, which are all gone, a publisher's cut was not read to its end, or the
    // key of a row that was evicted could not be read.
    bool lost = false;
    std::vector<uint64_t> keys;
    std::vector<std::string> texts;

    void Lose() {
      *this = Tombstones();
      lost = true;
    }
  };

  /// Runs `body(segment, positions, count, &again)` for all pending positions, grouped, with the segment locked; positions
  /// which it leaves in `again` because their segment has split come once more.
  template <bool kShared, typename Body>
  void ForEachGroup(KeyScratch* scratch, const Body& body) const;
  /// Runs `body(segment)` for the segment that has a hash, locked; returns the first hash after it, 0 after the last one.
  template <bool kShared, typename Body>
  uint64_t WithSegment(uint64_t hash, const Body& body) const;

  void LookupGroup(const LookupRequest& request, KeyScratch* scratch, Segment* segment, const uint32_t* positions,
                   size_t count, std::vector<uint32_t>* again, LookupCounts* counts);
  /// Splits a segment, or grows its index, if it shall and the call may, or if it must.
  void Grow(Segment* segment, int* growths);
  /// Returns the row that training gets for a key, kNoRow if it gets none.
  uint32_t TrainingRow(const KeyRef& key, uint32_t found, uint32_t occurrences, uint32_t now, Segment* segment,
                       LookupCounts* counts);
  void CopyRow(uint32_t row, float* out) const;
  // Rows on SSD (src/storage/table_tiers.cc).
  /// Reads a row on SSD into memory of this thread; its segment is locked. \throws SsdError
  RowOnSsd ReadFromSsd(const Segment& segment, uint32_t row) const;
  SsdError NoRowAt(LogPlace place) const;
  /// Gives rows on SSD that a call looks up full rows, with one batch of reads. `scratch->pending` has the positions.
  void MoveIn(const KeyBatch& keys, KeyScratch* scratch);
  /// Does so for what was found for one key; its segment is locked exclusively. Returns the row's new number, kNoRow if it
  /// is that of another key.
  uint32_t MoveIn(Segment* segment, const KeyRef& key, uint32_t row);
  /// Adds a row on SSD that was read, in the place of what the key has now.
  void AdoptRow(Segment* segment, const KeyRef& key, LogPlace place, const RowOnSsd& read);
  /// Removes rows on SSD of a segment, whose keys are read if somebody wants to know what was evicted.
  void EvictFromSsd(Segment* segment, const std::vector<uint32_t>& rows);
  /// Reads the rows of scratch->on_ssd, and passes each as `take(position, RowOnSsd)`; other positions become pending.
  template <typename Take>
  void ReadAll(const KeyBatch& keys, KeyScratch* scratch, const Take& take) const;
  UpdateResult SumGradients(const UpdateRequest& request, KeyScratch* scratch);
  size_t UpdateGroup(const UpdateRequest& request, KeyScratch* scratch, Segment* segment, const uint32_t* positions,
                     size_t count, const OptimizerStep& step);
  const float* Gradient(const UpdateRequest& request, const KeyScratch& scratch, uint32_t position) const;
  RowView HeaderOf(const Segment& segment, uint32_t row) const;
  /// With the values of a row on SSD, valid until the next call of the thread. \throws SsdError
  RowView ViewOf(const Segment& segment, uint32_t row) const;
  /// A row that is not on SSD.
  void EvictRow(Segment* segment, uint64_t hash, uint32_t row);
  size_t recorded_evictions() const;
  void RecordEviction(uint64_t key, std::string_view text, bool candidate);
  /// Lets all who want to know what was evicted read all rows instead.
  void LoseEvictions();

  const TableConfig config_;
  const std::unique_ptr<const Optimizer> optimizer_;
  const std::unique_ptr<Admission> admission_;
  const InitialRow initial_;
  RowStore store_;
  SegmentDirectory directory_;
  std::atomic<uint64_t> step_{0}, occurrences_{0};
  std::atomic<uint64_t> admitted_{0}, refused_{0}, evicted_{0}, released_{0}, updated_{0}, refused_updates_{0},
      dropped_updates_{0};
  mutable std::atomic<uint32_t> turn_{0};
  mutable std::mutex tombstones_mutex_;
  Tombstones tombstones_[kConsumers];
  std::atomic<bool> records_tombstones_{false};
  // Of cuts (src/cut): whether one of the consumer is being read, and the token of the last one of a checkpoint.
  std::atomic<bool> has_cut_[kConsumers] = {};
  std::atomic<uint64_t> last_cut_{0};
};

template <bool kShared, typename Body>
void ElasticTable::ForEachGroup(KeyScratch* scratch, const Body& body) const {
  std::vector<uint32_t> again;
  while (!scratch->pending.empty()) {
    const SegmentDirectory::Array& array = directory_.array();
    scratch->groups.Build(array, scratch->hashes.data(), scratch->pending);
    const std::vector<uint32_t>& order = scratch->groups.order();
    const size_t start = turn_.fetch_add(1, std::memory_order_relaxed) * kGoldenStep >> 40;
    scratch->groups.ForEachLocked<kShared>(start, [&](const KeyGroups::Group& group) {
      const uint32_t* positions = &order[group.begin];
      const size_t count = group.end - group.begin;
      // Hashes are in order of their highest bits, so if the segment has the first and the last, it has all between.
      const Segment& segment = *group.segment;
      if (segment.depth() <= array.depth() && segment.Covers(scratch->hashes[positions[0]]) &&
          segment.Covers(scratch->hashes[positions[count - 1]])) {
        body(group.segment, positions, count, &again);
      } else {
        again.insert(again.end(), positions, positions + count);
      }
    });
    scratch->pending.swap(again);
    again.clear();
  }
}

template <bool kShared, typename Body>
uint64_t ElasticTable::WithSegment(uint64_t hash, const Body& body) const {
  for (;;) {
    const SegmentDirectory::Array& array = directory_.array();
    Segment* const segment = array.at(array.entry(hash));
    std::conditional_t<kShared, std::shared_lock<SegmentMutex>, std::unique_lock<SegmentMutex>> lock(segment->mutex);
    if (!segment->Covers(hash)) continue;  // it has split meanwhile
    body(segment);
    return segment->end();
  }
}

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_STORAGE_ELASTIC_TABLE_H_
