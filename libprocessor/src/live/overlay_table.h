// SPDX-License-Identifier: Apache-2.0
// The changed rows of one table at several epochs at a time: multi-version concurrency control with one writer.
//
// A reader at epoch e takes of each row the newest version whose epoch is not above e; without one, the row of the file.
// Readers take no locks. What they may read is kept until no epoch that somebody reads needs it.
#ifndef PROCESSOR_LIVE_OVERLAY_TABLE_H_
#define PROCESSOR_LIVE_OVERLAY_TABLE_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "src/live/changed_rows.h"
#include "src/live/live_index.h"
#include "src/live/overlay_index.h"
#include "src/live/overlay_memory.h"
#include "src/live/retired.h"
#include "src/tables/delta_content.h"
#include "src/tables/embedding_table.h"

namespace processor {

/// Parts of a VersionRef.
constexpr VersionRef MakeVersion(uint32_t epoch, bool deleted, uint32_t row) {
  return VersionRef{epoch} << 34 | VersionRef{deleted} << 32 | row;
}
/// A version that was written into the row of the file; its own row has what was there before.
constexpr VersionRef MakeInPlace(uint32_t epoch, uint32_t row_before) {
  return VersionRef{epoch} << 34 | VersionRef{1} << 33 | row_before;
}
constexpr uint32_t EpochOf(VersionRef version) { return static_cast<uint32_t>(version >> 34); }
constexpr bool IsInPlace(VersionRef version) { return (version >> 33 & 1) != 0; }
constexpr bool IsDeleted(VersionRef version) { return (version >> 32 & 1) != 0; }
constexpr uint32_t RowOf(VersionRef version) { return static_cast<uint32_t>(version); }
/// A version of epoch 0, which no row has: the keys of a row have versions of their own, because they shared it.
constexpr VersionRef kKeysDiffer = 1;
/// Epochs of an overlay begin with 1, the first after that of the file.
constexpr uint64_t kMostOverlayEpochs = (uint64_t{1} << 30) - 1;

/// Where the rows of a file are in the variable from which it was made.
struct SourceRows {
  int64_t first_row = 0;
  std::vector<int64_t>
      rows;               // of each row of the file and each default row, or -1; empty: consecutive from first_row on
  int64_t num_rows = -1;  // of the variable; -1: not known
};

/// A key that the table's index has, and its row.
struct KeyOfRow {
  uint64_t key;
  uint32_t row;
};

/// What an epoch has changed.
struct ChangedAt {
  uint32_t epoch = 0;
  std::vector<uint32_t> rows;     // of the file, ascending
  std::vector<KeyOfRow> deleted;  // of these
  std::vector<uint64_t> keys;     // numbers of keys in the index of new keys
};

class OverlayTable {
 public:
  /// \return RESOURCE_EXHAUSTED or INVALID_ARGUMENT that names the table.
  static absl::Status Create(std::shared_ptr<const EmbeddingTable> base, DeltaKeyKind key_kind, SourceRows source,
                             std::unique_ptr<OverlayTable>* overlay);
  OverlayTable(const OverlayTable&) = delete;
  OverlayTable& operator=(const OverlayTable&) = delete;

  const EmbeddingTable& base() const { return *base_; }
  const std::shared_ptr<const EmbeddingTable>& shared_base() const { return base_; }
  DeltaKeyKind key_kind() const { return key_kind_; }

  // For readers, from any thread:
  const uint8_t* rows() const { return memory_->rows(); }
  /// Finds the rows of keys: at first as the file does, later in an index in memory, which has new keys as well, and none
  /// that all epochs have deleted. \return the number of keys that got kNotFound; key_index() may have them.
  template <typename Key>
  size_t FindKeys(absl::Span<const Key> keys, uint32_t* rows) const {
    const LiveIndex* const index = live_index_.load(std::memory_order_acquire);
    return index == nullptr ? base_->FindKeys(keys, rows) : index->Find(keys, rows);
  }
  /// Returns the index in memory; null: the file's is right.
  const LiveIndex* live_index() const { return live_index_.load(std::memory_order_acquire); }
  /// Returns which rows of the file, and which default rows, may have versions.
  const ChangedRows& changed_rows() const { return *changed_; }
  /// Returns the versions of keys that FindKeys() does not find, or whose rows others share; null: there are none. It stays
  /// as long as the view of the request.
  const OverlayIndex* key_index() const { return key_index_.load(std::memory_order_acquire); }
  /// Returns the version of epoch `epoch`, 0 if that is the row of the file, or kKeysDiffer.
  VersionRef At(const std::atomic<VersionRef>* newest, uint32_t epoch) const {
    if (newest == nullptr) return 0;
    VersionRef version = newest->load(std::memory_order_acquire);
    while (EpochOf(version) > epoch) {
      if (IsInPlace(version)) return Before(version, epoch);
      version = RowOf(version) == 0 ? 0 : memory_->replaced(RowOf(version)).load(std::memory_order_acquire);
    }
    return version == kDroppedKey || IsInPlace(version) ? 0 : version;
  }
  /// Whether all keys are those of the file.
  bool HasKeysOfFile() const { return key_index() == nullptr && live_index() == nullptr; }
  /// Whether the rows of the file are those of epoch `epoch`, so that only keys that it does not have need At().
  bool IsInFile(uint32_t epoch) const { return epoch >= in_file_from_.load(std::memory_order_acquire); }

  // For the writer, one thread at a time:
  /// Who may read. Views are counted in generations: when a view is published again, requests that begin from then on are
  /// of a later generation, and do not find what was replaced before.
  struct Readers {
    uint32_t oldest_epoch = 0;  // that is read or kept
    uint64_t generation = 1;    // the newest
    uint64_t oldest_generation = 1;
  };
  /// Tells who may read, and uses again what nobody can find any more.
  void SetReaders(const Readers& readers) noexcept;

  /// The changes of an epoch, which nobody sees before Commit(). It refers to the segment.
  class Change {
   public:
    size_t num_rows() const { return targets_.size(); }

   private:
    friend class OverlayTable;
    struct Target {
      uint64_t key;
      std::string_view text;
      bool by_key;
      bool deleted;
      uint32_t file_row;  // kNotFound: FindKeys() does not find the key
      const float* values;
      uint32_t row = 0;     // where they are encoded; 0: a deletion that replaces no version
      uint64_t number = 0;  // of the key whose row is deleted
    };
    std::vector<Target> targets_;  // ascending file rows
    std::list<ChangedAt> log_;     // one element
  };

  /// Encodes the rows of a segment, and takes all memory that Commit() needs. A failure leaves everything as it was.
  /// \return INVALID_ARGUMENT that names the key that does not fit, or RESOURCE_EXHAUSTED.
  absl::Status Prepare(const DeltaTable& delta, Change* change);
  /// Makes the changes versions of an epoch above all others.
  void Commit(uint32_t epoch, Change* change) noexcept;
  /// Gives back the rows of changes that are not committed.
  void Abandon(Change* change) noexcept;

  /// Gives back versions that no epoch reads any more, and writes those that all epochs read into the rows of the file in
  /// memory, where that saves some. It ends soon after `until`. \return whether something is left to do.
  bool Compact(std::chrono::steady_clock::time_point until) noexcept;
  /// Makes an index in memory when many keys are new or deleted, and moves new keys to it. It ends soon after `until`, or when
  /// readers of earlier generations have to leave first (HasRetired()). \return as WriteInPlace().
  bool AdvanceIndex(std::chrono::steady_clock::time_point until) noexcept;
  /// Writes the newest versions into the rows of the file in memory, and what they replace into the overlay, so that the
  /// newest epoch does not pay for versions. It ends soon after `until`, or when readers of earlier generations have to
  /// leave first (HasRetired()). \return whether something is left to do that need not wait.
  bool WriteInPlace(std::chrono::steady_clock::time_point until) noexcept;
  /// Returns how many epochs are older than all that are read, and not compacted yet.
  size_t uncompacted_epochs() const;
  /// Whether rows or memory wait until readers of the newest generation have left.
  bool HasRetired() const {
    return changed_->HasRetired() || !retired_rows_.empty() || !retired_indexes_.empty() || !erased_keys_.empty() ||
           !moved_keys_.empty() || stage_ == IndexStage::kErased || awaited() != 0;
  }

  /// Returns the generation whose readers have to leave before WriteInPlace() goes on, and those of all before it; 0: none.
  uint64_t awaited() const {
    return writing_.is_kept && readers_.oldest_generation <= writing_.generation ? writing_.generation : 0;
  }

  /// Returns the overlay rows that versions occupy.
  size_t live_rows() const { return memory_->taken() - retired_rows_.size(); }
  size_t bytes() const;

 private:
  OverlayTable(std::shared_ptr<const EmbeddingTable> base, DeltaKeyKind key_kind, SourceRows source)
      : base_(std::move(base)), key_kind_(key_kind), source_(std::move(source)) {}

  absl::Status CheckSource();
  absl::Status FindSharedRows();
  void AddKeys(const DeltaKeys& keys, const float* rows, Change* change) const;
  absl::Status AddSourceRows(const DeltaTable& delta, Change* change) const;
  void AddTarget(uint64_t key, std::string_view text, uint32_t file_row, const float* values, Change* change) const;
  VersionRef NewestOf(uint64_t key, std::string_view text, bool by_key) const;
  absl::Status Fill(const DeltaTable& delta, Change* change);
  static void SortByRow(std::vector<Change::Target>* targets);
  static size_t EndOfGroup(const std::vector<Change::Target>& targets, size_t begin);
  absl::Status TakeRows(Change* change);
  absl::Status Encode(const DeltaTable& delta, const Change& change);
  absl::Status ReserveIndexes(Change* change);
  void SetKeyIndex(std::unique_ptr<OverlayIndex> index);
  bool IsShared(uint32_t row) const { return !shared_.empty() && shared_[row]; }

  void CommitKey(VersionRef version, const Change::Target& target) noexcept;
  void Trim(std::atomic<VersionRef>* newest, bool in_file) noexcept;
  void GiveBack(uint32_t row) noexcept;
  void GiveBackFrom(VersionRef version) noexcept;
  void EndLoan(uint32_t row) noexcept;
  void CompactKey(uint64_t key);
  void CompactNewKey(uint64_t key, std::string_view text, std::atomic<VersionRef>* newest);
  void PruneNewKeys();
  void KeepForNewKeys(uint32_t row);
  bool IsUnread(uint32_t row) const;
  uint32_t TakeFileRow();
  void CompactRows(const uint32_t* rows, size_t count);
  void WriteToFileRows(uint32_t first, uint32_t end);
  bool IsWorthIt(uint32_t first, uint32_t end) const;
  bool IsWritable(uint32_t row) const;
  VersionRef Before(VersionRef in_place, uint32_t epoch) const;
  void Keep(const uint32_t* rows, size_t count);
  bool KeepRow(uint32_t row);
  void Write(const uint32_t* rows, size_t count);

  // The index in memory (overlay_keys.cc):
  bool IsIndexWorthIt() const;
  bool DoAdvanceIndex(std::chrono::steady_clock::time_point until);
  bool CopyIndex(std::chrono::steady_clock::time_point until);
  void PublishIndex();
  bool MoveKeys(std::chrono::steady_clock::time_point until);
  void EraseKey(uint64_t key, uint32_t row);
  void MoveKey(uint64_t key, std::string_view text, VersionRef version);
  uint32_t TakeRowFor(VersionRef version);
  void UseErasedAgain();

  const std::shared_ptr<const EmbeddingTable> base_;
  const DeltaKeyKind key_kind_;
  const SourceRows source_;
  std::vector<std::pair<int64_t, uint32_t>> rows_of_source_;  // ascending; if source_.rows is not empty
  std::unique_ptr<OverlayMemory> memory_;
  std::unique_ptr<ChangedRows> changed_;
  std::vector<bool> shared_;  // rows with several keys; empty if there is none
  std::atomic<const OverlayIndex*> key_index_{nullptr};
  std::unique_ptr<OverlayIndex> owned_key_index_;

  // Rows of the file whose keys were deleted, which have room for other keys: those that wait for one, and flags for these and
  // for those that have one. With an index in memory, rows that wait have no key; those lent before have a flag then.
  std::vector<uint32_t> spare_rows_;
  std::vector<bool> is_spare_, is_lent_;
  size_t lent_ = 0;

  // An index in memory is made when many keys have changed: it is a copy of the file's (kCopied), from which keys are erased
  // that all epochs have deleted (kErasing), and into which new keys move when nobody reads the file's any more (kMoving).
  enum class IndexStage { kFile, kCopied, kErasing, kErased, kMoving, kMoved };
  IndexStage stage_ = IndexStage::kFile;
  size_t cursor_ = 0;        // buckets or places of the stage that are done
  uint64_t erased_in_ = 0;   // the generation in which kErased began
  size_t without_rows_ = 0;  // new keys that did not move because no row was free
  std::unique_ptr<LiveIndex> owned_live_index_;
  std::atomic<const LiveIndex*> live_index_{nullptr};  // null up to kCopied
  struct ErasedKey {
    LiveIndex::Place place;
    uint32_t row;
  };
  // A key that readers may have found only among the new keys.
  struct MovedKey {
    uint64_t key;
    VersionRef version;
    uint32_t row;
  };
  Retired<ErasedKey> erased_keys_;
  Retired<MovedKey> moved_keys_;

  Readers readers_;
  Retired<uint32_t> retired_rows_;
  Retired<std::unique_ptr<OverlayIndex>> retired_indexes_;
  std::list<ChangedAt> log_;    // ascending epochs
  size_t compacted_ = 0;        // so many elements of the first one are done: rows, deleted, keys
  size_t rejected_ = SIZE_MAX;  // a block whose rows stay, for as long as the first one is compacted

  static constexpr uint32_t kNoEpoch = UINT32_MAX;
  // The rows of an epoch that are being written into those of the file.
  struct Writing {
    uint32_t epoch = 0;       // 0: none
    size_t done = 0;          // so many of its rows
    bool is_kept = false;     // all that they replace is in the overlay
    uint64_t generation = 0;  // the last one that may not know
  };
  Writing writing_;
  uint32_t written_ = 0;      // this epoch and those before it are done
  uint32_t newest_ = 0;       // the last epoch that changed something
  size_t rows_in_place_ = 0;  // rows that have a bit and whose newest version is in place
  std::atomic<uint32_t> in_file_from_{0};
};

}  // namespace processor

#endif  // PROCESSOR_LIVE_OVERLAY_TABLE_H_
