// SPDX-License-Identifier: Apache-2.0
// What the cuts of checkpoints and of publishers have in common: a walk over the rows of a table that is trained meanwhile.
#ifndef ELASTIC_TRAINING_CUT_TABLE_READER_H_
#define ELASTIC_TRAINING_CUT_TABLE_READER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "src/cut/row_block.h"
#include "src/storage/elastic_table.h"

namespace elastic_training {

class TableReader : public RowKeeper {
 public:
  /// `columns`: floats of a full row that are read. \throws std::invalid_argument if a cut of this consumer has not ended.
  TableReader(ElasticTable* table, int consumer, size_t columns);
  ~TableReader() override { LetOthersBegin(); }

  /// Returns about `bytes` of rows, none at the end. \throws std::runtime_error if the cut is lost.
  virtual RowBlock Read(size_t bytes) = 0;
  /// Returns the keys that were evicted between the consumer's cut before and this one.
  RowBlock TakeEvicted();

  const ElasticTable& table() const { return *table_; }
  size_t columns() const { return columns_; }

 protected:
  void Append(const Segment& segment, uint32_t row, RowBlock* block) const;
  void AppendView(const RowView& view, uint32_t kind, RowBlock* block) const;
  /// Passes some rows of a segment that are chosen: calls `take(segment, rows)` with the segment locked; throws nothing that
  /// `take` does not throw. `walked_` tells the end.
  template <typename Choose, typename Take>
  void Walk(const Choose& choose, const Take& take);
  /// Asks the device for those of some rows that are on SSD and wanted, so that it has many requests at a time.
  void FetchFromSsd(const Segment& segment, const std::vector<uint32_t>& rows,
                    const std::function<bool(uint32_t flags)>& wanted) const;
  /// Lets a writer that waits for the segment have it.
  void Rest() const;
  /// Begins to count what is trained, for Rest.
  void NoteBegin() { occurrences_ = table_->occurrences(); }
  void LetOthersBegin();
  std::runtime_error Lost(const std::string& why) const;

  ElasticTable* const table_;
  bool walked_ = false;
  /// Rows on SSD are not read: the cut has their places.
  bool leaves_ssd_ = false;
  uint64_t occurrences_ = 0;
  ElasticTable::Tombstones evicted_;

 private:
  // Rows whose copying a writer may have to wait for, and buckets that may be passed meanwhile (in sixteens).
  static constexpr size_t kWalkRows = 512;
  static constexpr int kWalkBuckets = 64;

  const int consumer_;
  const size_t columns_;
  bool has_table_ = false;
  uint64_t cursor_ = 0;
  const Segment* at_ = nullptr;
  uint32_t index_version_ = 0, bucket_ = 0;
  std::vector<uint32_t> rows_;
};

template <typename Choose, typename Take>
void TableReader::Walk(const Choose& choose, const Take& take) {
  bool more = true;
  const uint64_t end = table_->WithSegment<false>(cursor_, [&](Segment* segment) {
    if (segment != at_ || segment->index_version() != index_version_) {
      // Rows that were taken before the index changed are passed again.
      at_ = segment;
      index_version_ = segment->index_version();
      bucket_ = 0;
    }
    rows_.clear();
    for (int passed = 0; more && rows_.size() < kWalkRows && passed < kWalkBuckets; ++passed) {
      more = segment->ForEachFrom(&bucket_, [&](uint32_t row) {
        if (!choose(*segment, row)) return;
        if (!IsOnSsd(row)) __builtin_prefetch(table_->store_.address(row), /*rw=*/1);
        rows_.push_back(row);
      });
    }
    take(segment, rows_);
  });
  if (more) return;
  cursor_ = end;
  at_ = nullptr;
  walked_ = end == 0;
}

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_CUT_TABLE_READER_H_
