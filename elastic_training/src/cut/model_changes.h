// SPDX-License-Identifier: Apache-2.0
// What changed in all tables of a model since the publisher's cut before, at one instant between the calls that write.
#ifndef ELASTIC_TRAINING_CUT_MODEL_CHANGES_H_
#define ELASTIC_TRAINING_CUT_MODEL_CHANGES_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "src/cut/changes_cut.h"
#include "src/cut/model_reader.h"
#include "src/cut/writers.h"

namespace elastic_training {

class ModelChanges final : public ModelReader {
 public:
  /// Stops the writers, who are between two calls then, for some microseconds. The tables must outlive the cut.
  /// `memory_bytes`: writers keep no more than that for the reader.
  /// \throws std::invalid_argument if a table is not followed, or its changes are being read; nothing has begun then.
  ModelChanges(const std::vector<ElasticTable*>& tables, size_t memory_bytes, Writers* writers = &Writers::OfProcess());
  ~ModelChanges() override { End(false); }

  size_t size() const override { return cuts_.size(); }
  ChangesCut& at(size_t table) override { return *cuts_[table]; }
  bool End(bool succeeded) override;

 private:
  ChangesMemory memory_;
  std::vector<std::unique_ptr<ChangesCut>> cuts_;
};

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_CUT_MODEL_CHANGES_H_
