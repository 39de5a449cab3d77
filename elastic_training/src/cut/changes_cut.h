// SPDX-License-Identifier: Apache-2.0
// What changed in a table since the publisher's cut before, as it was when this one began, read while training goes on.
//
// Rows have two marks of publishers, which take turns: changes set one of them, and a cut begins by making it the other
// one. So at once all rows that had changed are those that the cut has still to read, and nothing was passed over. The
// reader walks over the chunks that have the mark, and takes it away row by row; a writer that comes first keeps the row
// before it changes. Rows that change from then on have the mark of the next cut.
//
// Training never waits for a publisher: beyond a limit of memory, rows that would have to be kept are left to the next cut,
// and what was read is whole only with that.
#ifndef ELASTIC_TRAINING_CUT_CHANGES_CUT_H_
#define ELASTIC_TRAINING_CUT_CHANGES_CUT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "src/cut/row_block.h"
#include "src/cut/table_reader.h"

namespace elastic_training {

/// Memory of rows that writers kept, for all tables of a cut.
struct ChangesMemory {
  const size_t limit;
  std::atomic<size_t> kept{0};
};

/// Rows have their weights, without slots. Those of kind kReleased read zeros now, and nothing is stored of them.
class ChangesCut final : public TableReader {
 public:
  /// \throws std::invalid_argument if the table is not followed, or another cut has not ended.
  ChangesCut(ElasticTable* table, ChangesMemory* memory);
  ~ChangesCut() override { End(); }

  /// Writers are stopped. It takes no memory.
  void Begin();

  void Keep(Segment* segment, uint32_t row) override;

  /// \throws std::runtime_error if changes were lost: ElasticTable::Follow makes all rows count as changed again.
  RowBlock Read(size_t bytes) override;

  /// Ends the cut, and returns whether it was read to its end and had all changes. If it was not read to its end, they are
  /// lost; else what it lacks is in the next cut.
  bool End();

 private:
  RowBlock TakeKept();

  ChangesMemory* const memory_;
  bool begun_ = false, ended_ = false, lost_ = false;
  uint32_t mark_ = 0;
  std::atomic<bool> left_some_{false}, out_of_memory_{false}, unreadable_{false};

  std::mutex kept_mutex_;
  // The last block grows until it is large.
  std::deque<RowBlock> kept_;

  std::mutex read_mutex_;  // Guards all that follows, and the walk.
  bool has_chunks_ = false, whole_ = false;
  // Which chunks of rows have rows to be read.
  std::vector<bool> full_, records_;
};

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_CUT_CHANGES_CUT_H_
