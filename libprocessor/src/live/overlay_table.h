// SPDX-License-Identifier: Apache-2.0
// The changed rows of one table at several epochs at a time: multi-version concurrency control with one writer.
//
// A reader at epoch e takes of each row the newest version whose epoch is not above e; without one, the row of the file.
// Readers take no locks. What they may read is kept until no epoch that somebody reads needs it.
#ifndef PROCESSOR_LIVE_OVERLAY_TABLE_H_
#define PROCESSOR_LIVE_OVERLAY_TABLE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "src/live/overlay_index.h"
#include "src/live/overlay_memory.h"
#include "src/tables/delta_content.h"
#include "src/tables/embedding_table.h"

namespace processor {

/// Parts of a VersionRef.
constexpr VersionRef MakeVersion(uint32_t epoch, bool deleted, uint32_t row) {
  return VersionRef{epoch} << 33 | VersionRef{deleted} << 32 | row;
}
constexpr uint32_t EpochOf(VersionRef version) { return static_cast<uint32_t>(version >> 33); }
constexpr bool IsDeleted(VersionRef version) { return (version >> 32 & 1) != 0; }
constexpr uint32_t RowOf(VersionRef version) { return static_cast<uint32_t>(version); }
/// Versions of epoch 0, which no row has: the keys of a row have versions of their own, because they shared it; and a key
/// that the file does not have and that was deleted.
constexpr VersionRef kKeysDiffer = 1;
constexpr VersionRef kDroppedKey = 2;
/// Epochs of an overlay begin with 1, the first after that of the file.
constexpr uint64_t kMostOverlayEpochs = (uint64_t{1} << 31) - 1;

/// Where the rows of a file are in the variable from which it was made.
struct SourceRows {
  int64_t first_row = 0;
  std::vector<int64_t>
      rows;               // of each row of the file and each default row, or -1; empty: consecutive from first_row on
  int64_t num_rows = -1;  // of the variable; -1: not known
};

class OverlayTable {
 public:
  /// \return RESOURCE_EXHAUSTED or INVALID_ARGUMENT that names the table.
  static absl::Status Create(std::shared_ptr<const EmbeddingTable> base, DeltaKeyKind key_kind, SourceRows source,
                             std::unique_ptr<OverlayTable>* overlay);
  ~OverlayTable();
  OverlayTable(const OverlayTable&) = delete;
  OverlayTable& operator=(const OverlayTable&) = delete;

  const EmbeddingTable& base() const { return *base_; }
  DeltaKeyKind key_kind() const { return key_kind_; }

  // For readers, from any thread:
  const uint8_t* rows() const { return memory_->rows(); }
  void FetchChanged(uint32_t row) const { __builtin_prefetch(&changed_[row / 64]); }
  /// Whether a row of the file, or a default row, may have versions.
  bool Changed(uint32_t row) const { return (changed_[row / 64].load(std::memory_order_relaxed) >> row % 64 & 1) != 0; }
  /// Returns the version of epoch `epoch`, 0 if there is none, or kKeysDiffer.
  VersionRef At(const std::atomic<VersionRef>* newest, uint32_t epoch) const {
    if (newest == nullptr) return 0;
    VersionRef version = newest->load(std::memory_order_acquire);
    while (EpochOf(version) > epoch) {
      version = RowOf(version) == 0 ? 0 : memory_->replaced(RowOf(version)).load(std::memory_order_acquire);
    }
    return version == kDroppedKey ? 0 : version;
  }

  // For the writer, one thread at a time:
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
      uint32_t file_row;  // kNotFound: the file does not have the key
      const float* values;
      uint32_t row = 0;  // where they are encoded; 0: a deletion that replaces no version
    };
    std::vector<Target> targets_;
  };

  /// Gives back rows that no epoch from `oldest` on reads.
  void Reclaim(uint32_t oldest) noexcept;
  /// Encodes the rows of a segment, and takes all memory that Commit() needs. A failure leaves everything as it was.
  /// \return INVALID_ARGUMENT that names the key that does not fit, or RESOURCE_EXHAUSTED.
  absl::Status Prepare(const DeltaTable& delta, Change* change);
  /// Makes the changes versions of an epoch above all others.
  void Commit(uint32_t epoch, Change* change) noexcept;
  /// Gives back the rows of changes that are not committed.
  void Abandon(Change* change) noexcept;

  std::shared_ptr<const OverlayIndex> row_index() const { return row_index_; }
  std::shared_ptr<const OverlayIndex> key_index() const { return key_index_; }
  /// Returns the overlay rows that versions occupy.
  size_t live_rows() const { return used_rows_ - free_rows_.size(); }
  size_t bytes() const;

 private:
  bool Replaces(const Change::Target& target) const;
  void MarkChanged(uint32_t row) noexcept;

  // A version that no epoch from `epoch` on reads, and the one that has replaced it.
  struct Superseded {
    uint32_t epoch;
    uint32_t row;
    VersionRef by;
    uint64_t key;
    bool by_key;
    bool in_file;
  };

  OverlayTable(std::shared_ptr<const EmbeddingTable> base, DeltaKeyKind key_kind, SourceRows source)
      : base_(std::move(base)), key_kind_(key_kind), source_(std::move(source)) {}

  absl::Status CheckSource();
  absl::Status FindSharedRows();
  void AddKeys(const DeltaKeys& keys, const float* rows, Change* change) const;
  absl::Status AddSourceRows(const DeltaTable& delta, Change* change) const;
  void AddTarget(uint64_t key, std::string_view text, uint32_t file_row, const float* values, Change* change) const;
  absl::Status Fill(const DeltaTable& delta, Change* change);
  absl::Status TakeRows(Change* change);
  absl::Status Encode(const DeltaTable& delta, const Change& change);
  void ReserveIndexes(const Change& change);
  bool IsShared(uint32_t row) const { return !shared_.empty() && shared_[row]; }
  const OverlayIndex* IndexOf(bool by_key) const { return by_key ? key_index_.get() : row_index_.get(); }

  const std::shared_ptr<const EmbeddingTable> base_;
  const DeltaKeyKind key_kind_;
  const SourceRows source_;
  std::vector<std::pair<int64_t, uint32_t>> rows_of_source_;  // ascending; if source_.rows is not empty
  std::unique_ptr<OverlayMemory> memory_;
  std::atomic<uint64_t>* changed_ = nullptr;  // a bit for each row and default row
  size_t changed_bytes_ = 0;
  std::vector<bool> shared_;  // rows with several keys; empty if there is none
  // Replaced, never changed otherwise than by adding; readers hold those of their epoch.
  std::shared_ptr<OverlayIndex> row_index_, key_index_;
  uint32_t used_rows_ = 0;
  std::vector<uint32_t> free_rows_;
  std::vector<Superseded> superseded_;  // ascending epochs
  size_t reclaimed_ = 0;                // so many at its beginning are done
};

}  // namespace processor

#endif  // PROCESSOR_LIVE_OVERLAY_TABLE_H_
