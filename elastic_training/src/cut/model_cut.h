// SPDX-License-Identifier: Apache-2.0
// A consistent cut of a checkpoint over all tables of a model: one instant between the calls that write into tables.
#ifndef ELASTIC_TRAINING_CUT_MODEL_CUT_H_
#define ELASTIC_TRAINING_CUT_MODEL_CUT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "src/cut/model_reader.h"
#include "src/cut/table_cut.h"
#include "src/cut/writers.h"

namespace elastic_training {

struct CutSettings {
  /// Token of the cut whose changes are wanted, 0 for all rows. If a table does not have them, all rows are taken.
  uint64_t base = 0;
  /// Token of this cut, for a later one of changes; 0 if there will be none.
  uint64_t token = 0;
  /// Writers wait while they have kept so much and it is not read [bytes].
  size_t memory_bytes = size_t{256} << 20;
  /// Rows on SSD stay there: the cut has their places, and the log keeps them for `token` until it is told to forget it.
  bool leaves_ssd = false;
};

class ModelCut final : public ModelReader {
 public:
  /// Stops the writers, who are between two calls then, for some microseconds. The tables must outlive the cut.
  /// \throws std::invalid_argument if a cut of a table has not ended, std::bad_alloc; nothing has begun then.
  ModelCut(const std::vector<ElasticTable*>& tables, const CutSettings& settings,
           Writers* writers = &Writers::OfProcess());
  ~ModelCut() override { End(false); }

  bool changes_only() const { return changes_only_; }
  size_t size() const override { return cuts_.size(); }
  TableCut& at(size_t table) override { return *cuts_[table]; }
  /// Bytes that writers have kept and nobody has read.
  size_t kept() const { return memory_.kept(); }

  /// Changes since the cut are known by its token if it has succeeded and all its rows were read.
  bool End(bool succeeded) override;

 private:
  const CutSettings settings_;
  CutMemory memory_;
  bool changes_only_ = true;
  std::vector<std::unique_ptr<TableCut>> cuts_;
};

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_CUT_MODEL_CUT_H_
